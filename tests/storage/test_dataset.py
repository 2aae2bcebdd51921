"""Rows of tables are read by Arrow's own threads, which never enter Python while it shuts down."""

import ast
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
from deltalake import write_deltalake

import tidemill
from tidemill.storage.table_ref import TableRef

LIBRARY = Path(tidemill.__file__).parent


def test_a_dataset_reads_through_arrows_own_file_system(tmp_path):
    folder = tmp_path / "a table" / "of shop=1"
    folder.mkdir(parents=True)
    write_deltalake(str(folder), pa.table({"n": [1, 2, 3], "day": ["a", "b", "b"]}), partition_by=["day"])

    table = TableRef.at(folder)
    dataset = table.dataset(table.open())

    assert not isinstance(dataset.filesystem, pyarrow.fs.PyFileSystem)
    assert sorted(dataset.to_table().column("n").to_pylist()) == [1, 2, 3]
    assert dataset.count_rows(filter=pa.compute.field("day") == "b") == 2


def test_no_other_module_opens_a_table_for_arrow():
    opened = {
        path.relative_to(LIBRARY).as_posix()
        for path in LIBRARY.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in {"to_pyarrow_dataset", "to_pyarrow_table", "to_pandas"}
    }
    assert opened == {"storage/table_ref.py"}

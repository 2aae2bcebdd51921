"""Rows of the table: files, Delta tables and sources for tests."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.conformance import gallery
from tests.conformance.as_written import assert_refused
from tests.support.avro import write_avro
from tests.support.raising import raises
from tests.support.script_result import script_result
from tidemill import DeltaAppend, DeltaSource, Pipeline
from tidemill.testing import multiset

pytestmark = [pytest.mark.jvm, pytest.mark.campaign]
FOLDER = Path(__file__).parent
WRITERS = {
    "json": lambda path, rows: path.write_text("\n".join(json.dumps({"id": i, "n": n}) for i, n in rows)),
    "csv": lambda path, rows: path.write_text("".join(f"{i},{n}\n" for i, n in rows)),
    "text": lambda path, rows: path.write_text("".join(f"{i}\n" for i, _ in rows)),
    "xml": lambda path, rows: path.write_text(
        "<rows>" + "".join(f"<row><id>{i}</id><n>{n}</n></row>" for i, n in rows) + "</rows>"
    ),
    "parquet": lambda path, rows: pyarrow.parquet.write_table(_table(rows), path),
    "orc": lambda path, rows: pyarrow.orc.write_table(_table(rows), path),
    "avro": lambda path, rows: write_avro(path, {"id": "string", "n": "long"}, rows),
    "binaryFile": lambda path, rows: path.write_bytes(repr(rows).encode()),
}
WRITERS["infer"] = WRITERS["parquet"]


def _table(rows):
    return pa.table({"id": [i for i, _ in rows], "n": pa.array([n for _, n in rows], pa.int64())})


class Files:
    """A folder that gets files, each a second newer than the one before."""

    def __init__(self, folder):
        self.folder, self.number = folder, 0
        self.path = str(folder)
        folder.mkdir(parents=True)

    def add(self, name, rows, *, format="json", age=None):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        WRITERS[format](path, rows)
        self.number += 1
        time = (
            1_700_000_000 + self.number
            if age is None
            else datetime.now(UTC).timestamp() - age.total_seconds()
        )
        os.utime(path, (time, time))


def copied(source, name="copied"):
    return Pipeline("shop").stream(source={"rows": source}, sink=DeltaAppend(), name=name)(lambda rows: rows)


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path / "in")


@pytest.mark.parametrize("format", WRITERS)
def test_src_file_formats(scratch, files, format):
    stream = copied(gallery.src_file_formats(files.path)[format])
    for run in range(3):
        folder = f"day={run}/" if format == "csv" else ""
        files.add(f"{folder}{run}", [(f"r{run}", run), ("again", 1)], format=format)
        scratch.run(stream)
    if format == "binaryFile":
        contents = multiset((repr([(f"r{run}", run), ("again", 1)]).encode(),) for run in range(3))
        assert scratch.rows(stream, "content") == contents
        return
    columns = ["value"] if format == "text" else ["id", "n"]
    expected = [row for run in range(3) for row in ((f"r{run}", run), ("again", 1))]
    assert scratch.rows(stream, *columns) == multiset(row[: len(columns)] for row in expected)


def test_src_file_rate(scratch, files):
    for number in range(7):
        files.add(str(number), [("a", number)])
    [result] = scratch.run(copied(gallery.src_file_rate(files.path)))
    assert [batch.rows_read for batch in result.batches] == [3, 3, 1]
    size = (files.folder / "0").stat().st_size
    assert 2 * size <= 40 < 3 * size
    stream = copied(gallery.src_file_rate_bytes(files.path), "by_size")
    [result] = scratch.run(stream)
    assert [batch.rows_read for batch in result.batches] == [2, 2, 2, 1]
    assert scratch.rows(stream) == multiset(("a", number) for number in range(7))


@pytest.mark.parametrize("latest_first", [False, True])
def test_src_file_order(scratch, files, latest_first):
    for number in (2, 0, 1):
        files.add(str(number), [("a", number)])
    declare = gallery.src_file_order_latest_first if latest_first else gallery.src_file_order
    stream = copied(declare(files.path))
    scratch.run(stream)
    log = scratch.lake.table(stream.name).open()
    sums = []
    for version in range(1, log.version() + 1):
        log.load_as_version(version)
        sums.append(sum(log.to_pyarrow_table()["n"].to_pylist()) - sum(sums))
    assert sums == ([1, 0, 2] if latest_first else [2, 0, 1])


def test_src_file_name(scratch, files):
    stream = copied(gallery.src_file_name(files.path))
    files.add("one/same", [("first", 1)])
    scratch.run(stream)
    files.add("two/same", [("sums", 2)])
    files.add("two/other", [("new", 3)])
    scratch.run(stream)
    assert scratch.rows(stream) == multiset([("first", 1), ("new", 3)])


def test_src_file_age(scratch, files):
    stream = copied(gallery.src_file_age(files.path))
    files.add("new", [("new", 1)], age=timedelta(0))
    scratch.run(stream)
    files.add("old", [("old", 2)], age=timedelta(days=3))
    [result] = scratch.run(stream)
    assert result.outcome == "idle"
    assert any("old" in warning and "maxFileAge" in warning for warning in result.warnings), result.warnings
    assert scratch.rows(stream) == multiset([("new", 1)])


@pytest.mark.parametrize("how", ["archive", "delete"])
def test_src_file_clean(scratch, files, tmp_path, how):
    archive = tmp_path / "archive"
    archived = gallery.src_file_clean(files.path, str(archive))
    stream = copied(archived if how == "archive" else gallery.src_file_clean_delete(files.path))
    for number in range(3):
        files.add(str(number), [("a", number)])
        scratch.run(stream)
    assert scratch.rows(stream) == multiset(("a", number) for number in range(3))
    assert not (files.folder / "0").exists(), "a file goes once a later batch begins"
    assert len(list(archive.rglob("0"))) == (how == "archive")
    if how == "archive":
        with raises("arguments-conflict", "sourceArchiveDir"):
            gallery.src_file_clean(files.path, str(files.folder / "done"))


def test_src_file_part(scratch, files):
    source = gallery.src_file_part(files.path)
    stream = Pipeline("shop").stream(source={"rows": source}, sink=DeltaAppend(), name="copied")(
        lambda rows: rows.selectExpr("id", "CAST(day AS STRING) AS day")
    )
    for day in ("2026-01-01", "2026-01-02"):
        files.add(f"day={day}/1", [(day, 1)])
        scratch.run(stream)
    assert scratch.rows(stream) == multiset([("2026-01-01",) * 2, ("2026-01-02",) * 2])


def test_src_delta(scratch, tmp_path):
    table, shop = str(tmp_path / "table"), Pipeline("shop")
    write_deltalake(table, _table([("a", 1)]), configuration={"delta.enableChangeDataFeed": "true"})
    write_deltalake(table, _table([("b", 2)]), mode="append")

    sources = gallery.src_delta(table)
    everything, later, newest, since, kept, undeleted = (
        copied(sources[name], name)
        for name in ("everything", "later", "newest", "since", "kept", "kept_but_updates")
    )
    changes = shop.stream(source={"rows": sources["changes"]}, sink=DeltaAppend(), name="changes")(
        lambda rows: rows.select("id", "n", "_change_type")
    )
    for stream in (everything, later, newest, since, kept, undeleted, changes):
        scratch.run(stream)
    write_deltalake(table, _table([("c", 3)]), mode="append")
    for stream in (everything, later, newest, since, kept, undeleted, changes):
        scratch.run(stream)
    DeltaTable(table).delete("id = 'a'")
    write_deltalake(table, _table([("d", 4)]), mode="append")
    for stream in (kept, undeleted, changes):
        scratch.run(stream)
    rows = {name: n for n, name in enumerate("abcd", 1)}
    until_deleted = multiset((i, n) for i, n in rows.items() if i < "d")
    assert scratch.rows(everything) == scratch.rows(since) == until_deleted
    assert scratch.rows(later) == multiset([("b", 2), ("c", 3)])
    assert scratch.rows(newest) == multiset([("c", 3)])
    assert scratch.rows(kept) == scratch.rows(undeleted) == multiset(rows.items())
    assert scratch.rows(changes) == multiset(
        [*((i, n, "insert") for i, n in rows.items()), ("a", 1, "delete")]
    )


def test_src_table(scratch, tmp_path):
    write_deltalake(str(tmp_path / "first"), _table([("a", 1), ("b", 2)]))
    shop = Pipeline("shop")
    ours = shop.stream(
        source={"rows": DeltaSource(path=str(tmp_path / "first"))}, sink=DeltaAppend(), name="ours"
    )(lambda rows: rows.select("id", "n"))
    scratch.run(ours)
    # In a session that other tests have used, Delta has refused `toTable` (DELTA_INVALID_V1_TABLE_CALL).
    plain, table = FOLDER / "streams" / "plain_table.py", scratch.lake.table(ours.name).uri
    written, checkpoint = str(tmp_path / "written"), str(tmp_path / "checkpoint")
    assert script_result(plain, table, written, checkpoint, cwd=tmp_path) == 2

    @shop.stream(source={"rows": DeltaSource(path=written)}, sink=DeltaAppend())
    def src_table(rows):
        """A table into which plain Spark copied the table of another stream, by `table` and `toTable`."""
        return rows.select("id", "n")

    scratch.run(src_table)
    assert scratch.rows(src_table) == multiset([("a", 1), ("b", 2)])


@pytest.mark.parametrize("declare", [gallery.src_socket, gallery.src_rate], ids=["src_socket", "src_rate"])
def test_row(declare):
    assert_refused("source-endless", declare)


def test_src_rate_mb(scratch):
    stream = copied(gallery.src_rate_mb())
    for _ in range(3):
        scratch.run(stream)
    assert scratch.rows(stream, "value") == multiset((n,) for n in range(12))

"""Files of batches as Spark reads them: exactly once, and compared with plain Python."""

import json

import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructType

from tests.sinks.streams import sales, sales_stream
from tests.support.raising import raises
from tidemill import FileSink
from tidemill.connectors.files.sink_log import FileLog, Written
from tidemill.definitions.sink import SinkContext
from tidemill.run.spark.engine import session_of
from tidemill.storage.local_store import LocalStore
from tidemill.storage.table_ref import TableRef
from tidemill.testing import multiset

ARRIVALS = [[("a", 5), ("b", 3), ("a", 5)], [("a", 1)], [("b/c", 7), (None, 2)]]
SALES = multiset(row for rows in ARRIVALS for row in rows)


def read(scratch, folder, file_format, *columns):
    """The rows that Spark reads from a folder."""
    with session_of(scratch.engine) as spark:
        rows = spark.read.format(file_format).load(str(folder)).select(*columns)
        return multiset(tuple(row) for row in rows.collect())


def data_files(folder):
    return {str(path) for path in folder.rglob("part-*") if not path.name.endswith(".crc")}


def test_spark_reads_the_rows_of_every_run(scratch, tmp_path):
    lines, partitions = tmp_path / "lines of a folder", tmp_path / "partitions"
    compressed = {"compression": "gzip"}
    stream = sales_stream(
        FileSink(str(lines), "json"),
        FileSink(str(partitions), partition_by=["shop"], options=compressed, name="partitions"),
    )
    scratch.run(stream, [sales(*rows) for rows in ARRIVALS])
    for folder, file_format in ((lines, "json"), (partitions, "parquet")):
        with session_of(scratch.engine) as spark:
            assert set(spark.read.format(file_format).load(str(folder)).columns) == {"shop", "amount"}
        assert read(scratch, folder, file_format, "shop", "amount") == SALES
        assert set(FileSink.published(str(folder))) == data_files(folder)
        assert list((folder / "_staging").iterdir()) == []


def test_spark_reads_a_compacted_log(scratch, tmp_path):
    log = FileLog(LocalStore(tmp_path / "files"))
    log.begin()
    for batch in range(25):
        log.folder.create(f"{batch}.json", json.dumps({"number": batch}).encode())
        (file,) = (entry for entry in log.folder.list() if entry.name == f"{batch}.json")
        log.publish([file], Written("query", batch, "json", ()), retention=None)
    log.folder.create("not-published.json", b'{"number": 25}')
    assert read(scratch, tmp_path / "files", "json", "number") == multiset((batch,) for batch in range(25))


def output_of(**columns):
    output = StructType()
    for name, kind in columns.items():
        output.add(name, kind)
    return output


@pytest.mark.parametrize(
    ("sink", "columns", "message"),
    [
        ({"partition_by": ["day"]}, {"a": StringType()}, "no column 'day'"),
        ({"partition_by": ["a"]}, {"a": StringType()}, "none is left"),
        ({"format": "text"}, {"a": LongType()}, "a bigint"),
        ({"format": "text"}, {"a": StringType(), "b": StringType()}, "one column of strings"),
        ({"format": "csv"}, {"a": ArrayType(LongType())}, "'a' is array<bigint>, which csv cannot have"),
        (
            {"partition_by": ["a"]},
            {"a": StructType().add("b", "string"), "c": LongType()},
            "by which the sink partitions",
        ),
    ],
)
def test_columns_that_the_files_cannot_have_are_refused(tmp_path, sink, columns, message):
    with raises("sink-columns-unsuitable", message, "Fix: "):
        FileSink(str(tmp_path), **sink).check(context_of(tmp_path), output_of(**columns))


def context_of(folder):
    return SinkContext(TableRef.at("t"), FileSink(str(folder)).connection(None))


def test_a_folder_with_files_of_others_is_refused(tmp_path):
    (tmp_path / "rows.json").write_text("{}")
    with raises("sink-folder-not-empty", str(tmp_path), "Fix: "):
        FileSink(str(tmp_path)).check(context_of(tmp_path), output_of(a=StringType()))


def test_a_folder_of_the_file_sink_of_spark_is_refused(tmp_path):
    (tmp_path / "_spark_metadata").mkdir()
    line = {"path": "file:///x", "size": 1, "isDir": False, "modificationTime": 1, "action": "add"}
    (tmp_path / "_spark_metadata" / "0").write_text(f"v1\n{json.dumps(line)}")
    with raises("sink-folder-not-empty", str(tmp_path), "_spark_metadata"):
        FileSink(str(tmp_path)).check(context_of(tmp_path), output_of(a=StringType()))


@pytest.mark.parametrize("changed", [{"format": "json"}, {"partition_by": ["b"]}])
def test_another_layout_of_the_same_folder_is_refused(tmp_path, changed):
    (tmp_path / "part-0.parquet").write_text("")
    (file,) = LocalStore(tmp_path).list()
    FileLog(LocalStore(tmp_path)).publish([file], Written("query", 0, "parquet", ("a",)), retention=None)
    columns = output_of(a=StringType(), b=StringType())
    FileSink(str(tmp_path), partition_by=["a"]).check(context_of(tmp_path), columns)
    with raises("sink-changed", str(tmp_path), "'parquet'", "['a']", "Fix: "):
        FileSink(str(tmp_path), **{"partition_by": ["a"], **changed}).check(context_of(tmp_path), columns)


@pytest.mark.parametrize(
    ("arguments", "code", "value"),
    [
        ({"path": ""}, "argument-invalid", "path"),
        ({"path": "s3://bucket/files"}, "store-not-supported", "s3://"),
        ({"format": "xls"}, "argument-invalid", "'xls'"),
        ({"partition_by": "day"}, "argument-invalid", "['day']"),
        ({"retention": "soon"}, "argument-invalid", "retention"),
        ({"retention": "0 seconds"}, "argument-invalid", "retention is 0"),
        ({"options": {"path": "/y"}}, "option-is-argument", "path="),
        ({"options": {"retention": "1 day"}}, "option-is-argument", "retention="),
        ({"options": {"header": "true"}}, "option-not-known", "header"),
        ({"format": "csv", "options": {"header": "yes"}}, "argument-invalid", "header"),
        ({"options": {"maxRecordsPerFile": "many"}}, "argument-invalid", "maxRecordsPerFile"),
        ({"format": "csv", "options": {"headr": "true"}}, "option-not-known", "header"),
    ],
)
def test_a_sink_that_is_declared_wrongly_is_refused(arguments, code, value):
    with raises(code, value):
        FileSink(**{"path": "/x", **arguments})


def test_properties_of_a_format_are_options():
    assert FileSink("/x", options={"parquet.block.size": "1024"}).delivery == "exactly once"

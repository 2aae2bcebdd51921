"""Files of each format as a source, in increments, against the rows that were written."""

import json

import pytest
from pyspark.sql import types as t

from tests.support.avro import write_avro
from tests.text.test_ddl import DDL, NESTED
from tidemill import DeltaAppend, FileSink, FileSource, Pipeline
from tidemill.operations.edits.code_changes import code_changes
from tidemill.operations.replay.rebuild import rebuild
from tidemill.run.spark.engine import session_of
from tidemill.testing import multiset

pytestmark = pytest.mark.jvm

ROWS = t.StructType([t.StructField("id", t.LongType()), t.StructField("name", t.StringType())])


def read(folder, name, source_format, **declared):
    source = FileSource(path=str(folder), format=source_format, **declared)
    return Pipeline("shop").stream(source=source, sink=DeltaAppend(), name=name)(lambda rows: rows)


def test_xml_files_are_read_once(scratch, tmp_path):
    (tmp_path / "in").mkdir()
    stream = read(tmp_path / "in", "orders", "xml", schema=ROWS, options={"rowTag": "order"})
    for number in (1, 2):
        order = f"<order><id>{number}</id><name>n{number}</name></order>"
        (tmp_path / "in" / f"{number}.xml").write_text(f"<orders>{order}</orders>")
        scratch.run(stream)
    assert scratch.run(stream)[0].outcome == "idle"
    assert scratch.rows(stream) == multiset([(1, "n1"), (2, "n2")])


def test_avro_files_are_read_once_and_written(scratch, tmp_path):
    from pyspark.sql.avro.functions import from_avro, to_avro

    (tmp_path / "in").mkdir()
    out = str(tmp_path / "out")
    source = FileSource(path=str(tmp_path / "in"), format="avro", schema="infer")
    stream = Pipeline("shop").stream(
        source=source, sink=[DeltaAppend(), FileSink(out, "avro")], name="orders"
    )(lambda rows: rows.select("id", from_avro(to_avro("name", '"string"'), '"string"').alias("name")))
    written = [[(1, "n1"), (-70, "n2")], [(1 << 40, "n3")]]
    for number, rows in enumerate(written):
        write_avro(tmp_path / "in" / f"{number}.avro", {"id": "long", "name": "string"}, rows)
        scratch.run(stream)
    assert scratch.run(stream)[0].outcome == "idle"
    expected = multiset(written[0] + written[1])
    assert scratch.rows(stream) == expected
    with session_of(scratch.engine) as spark:
        assert multiset(map(tuple, spark.read.format("avro").load(out).collect())) == expected


def test_whole_files_are_rows_with_their_content(scratch, tmp_path):
    (tmp_path / "in").mkdir()
    stream = read(tmp_path / "in", "images", "binaryFile", options={"pathGlobFilter": "*.png"})
    for name in ("a.png", "b.png", "c.txt"):
        (tmp_path / "in" / name).write_bytes(name.encode())
    scratch.run(stream)
    assert scratch.rows(stream, "length", "content") == multiset([(5, b"a.png"), (5, b"b.png")])


def test_spark_reads_the_ddl_of_a_struct_type_back(scratch):
    with session_of(scratch.engine) as spark:
        assert spark.createDataFrame([], DDL).schema == NESTED


@pytest.mark.parametrize("source_format", ["json", "csv"])
def test_an_inferred_schema_is_that_of_the_first_run(scratch, tmp_path, source_format):
    (tmp_path / "in").mkdir()
    options = {"header": "true"} if source_format == "csv" else {}
    stream = read(tmp_path / "in", "orders", source_format, schema="infer", options=options)

    def write(number, **row):
        text = f"{','.join(row)}\n{','.join(map(str, row.values()))}\n" if options else json.dumps(row)
        (tmp_path / "in" / f"{number}.txt").write_text(text)

    (first,) = scratch.run(stream)
    assert (first.outcome, "has no file yet" in first.warnings[0]) == ("idle", True)
    write(1, id=1, name="a")
    scratch.run(stream)
    write(2, id=2, name="b", price=3)
    scratch.run(stream)
    assert scratch.rows(stream) == multiset([(1, "a"), (2, "b")])
    kind = "int" if options else "bigint"
    (change,) = code_changes([stream], scratch.target, scratch.engine)
    assert (change.kind, change.schemas) == ("nothing", {"rows": f"`id` {kind}, `name` string"})

    if options:  # Spark takes the names of all CSV files from the first one
        return
    rebuild(stream, scratch.target, scratch.engine)
    assert scratch.rows(stream, "id", "name", "price") == multiset([(1, "a", None), (2, "b", 3)])

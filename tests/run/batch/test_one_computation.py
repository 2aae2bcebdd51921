"""A batch is computed once for all its tables, and its rows are counted once, where they enter the function."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from tests.support.failing import PURPOSE, Failing
from tests.support.raising import raises
from tidemill import DeltaAppend, DeltaMerge, DeltaSource, Expect, Feed, Json, Pipeline, QueryOptions
from tidemill.definitions.sink import SinkContext
from tidemill.records.stream_records import StreamRecords
from tidemill.run.batch.writer import BatchWriter
from tidemill.storage.table_ref import TableRef
from tidemill.testing import multiset

# The tests' Spark interprets expressions, and only a compiled plan looks for the key.
COMPILED = QueryOptions(
    options={"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
)
EVENT = "id STRING, n INT"


def events(count, start=0):
    return [{"id": f"e{number}", "n": number} for number in range(start, start + count)]


def by_id(rows):
    return {row[0]: row[1:] for row in rows}


# Spark's `uuid()` and `rand()` have a seed in the plan; this has none, and the time is that of each write.
RANDOM = "reflect('java.util.UUID', 'randomUUID')"


def randomized(rows):
    random = (
        rows.withColumn("tag", F.expr(RANDOM)).withColumn("chance", F.rand()).withColumn("other", F.uuid())
    )
    return random.withColumn("at", F.current_timestamp())


def test_a_random_value_is_the_same_in_every_table_and_in_the_counts(scratch):
    sinks = [
        DeltaAppend(name="archive"),
        DeltaMerge(keys=["id"], sequence_by="n", name="latest"),
        DeltaMerge(keys=["id"], sequence_by="n", scd_type=2, name="history"),
        DeltaAppend(),
    ]
    rules = [Expect("lucky", "chance < 0.5"), Expect("odd", "tag < '8'", on_violation="drop")]
    stream = Pipeline("shop").stream(
        source=Feed("events", format=Json(EVENT)), sink=sinks, expect=rules, name="events"
    )(randomized)
    result = scratch.run(stream, [events(60)])[0]
    rows = by_id(scratch.rows(stream, "id", "tag", "chance", "other", "at"))
    for sink in sinks:
        table = Path(scratch.lake.table(stream.name, sink.name).uri)
        assert by_id(scratch.table_rows(TableRef.at(table), "id", "tag", "chance", "other", "at")) == rows
    assert 0 < len(rows) < 60
    assert all(tag < "8" for tag, *_ in rows.values())
    batch = result.batches[0]
    assert batch.violations["odd"] == batch.rows_dropped == 60 - len(rows)
    unlucky = sum(chance >= 0.5 for _, chance, *_ in rows.values())
    assert unlucky <= batch.violations["lucky"] <= unlucky + batch.rows_dropped


def test_a_feed_that_is_merged_has_one_random_value_per_row(scratch):
    """SCD 2 uses the changes twice: for the keys that change, and for their versions."""
    stream = Pipeline("shop").stream(
        source=Feed("events", format=Json(EVENT)),
        sink=DeltaMerge(keys=["tag"], sequence_by="n", scd_type=2),
        name="events",
    )(lambda rows: rows.withColumn("tag", F.expr(RANDOM)))
    scratch.run(stream, [events(20)])
    assert len(scratch.rows(stream, "tag")) == 20


@dataclass
class Records:
    """As much of a stream's records as a writer needs, for a stream that no definition declares."""

    folder: Path
    stream: str = "shop/ranking"

    def checkpoint(self, _generation):
        return self.folder / "checkpoint"

    def table(self, sink):
        return TableRef.at(self.folder / sink)

    def sink_context(self, sink, _connection):
        return SinkContext(self.table(sink))

    def sink_table(self, _query_id):
        return None

    def assert_lease(self, epoch):
        pass


@dataclass(frozen=True)
class Replace(DeltaAppend):
    """Replaces the table: what complete mode needs."""

    def commit(self, rows, table, _transaction, _metadata):
        rows.write.format("delta").mode("overwrite").save(table.uri)


@pytest.mark.campaign
@pytest.mark.parametrize(
    "names",
    [["main"], ["copy", "main"]],
    ids=["one sink", "two sinks"],
)
def test_a_sorted_and_limited_result_in_complete_mode_is_computed_once(engine, tmp_path, names):
    """Spark cannot cache such a plan: `key not found: k#...`."""
    spark, landing = engine.new(), str(tmp_path / "in")
    for conf, value in COMPILED.options.items():
        spark.conf.set(conf, value)
    keys = [1, 1, 1, 2, 2, 3]
    for _ in range(2):
        spark.createDataFrame([(k,) for k in keys], "k INT").coalesce(1).write.mode("append").parquet(landing)
    rows = spark.readStream.schema("k INT").option("maxFilesPerTrigger", "1").parquet(landing)
    ranking = rows.groupBy("k").count().orderBy(F.desc("count")).limit(2)
    writer = BatchWriter(
        records=Records(tmp_path),
        generation=1,
        epoch=0,
        sinks=tuple(Replace(name=name) for name in names),
        fingerprint="",
        static_versions={},
    )
    query = (
        ranking.observe("output", F.count(F.lit(1)).alias("rows"))
        .writeStream.outputMode("complete")
        .foreachBatch(writer)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    tables = [spark.read.format("delta").load(str(tmp_path / name)).collect() for name in names]
    assert all(multiset(table) == multiset([(1, 6), (2, 4)]) for table in tables)
    observed = [json.loads(entry.json)["observedMetrics"]["output"]["rows"] for entry in query.recentProgress]
    assert observed == [2, 2]


def numbers(scratch, stream):
    """The rows read by each batch in the ledger."""
    lines = StreamRecords(scratch.lake, stream.name).ledger.lines()
    return [line.rows_read for line in sorted(lines, key=lambda line: line.batch_id)]


def write(engine, path, count, start=0):
    frame = engine.new().createDataFrame([(e["id"], e["n"]) for e in events(count, start)], EVENT)
    frame.coalesce(1).write.format("delta").mode("append").save(str(path))
    return DeltaSource(path=str(path))


def test_rows_that_a_filter_leaves_out_are_read(scratch, engine, tmp_path):
    """Delta leaves the file out by its statistics; Spark then reads 0 rows."""
    source = write(engine, tmp_path / "t", 7)
    stream = Pipeline("shop").stream(source=source, sink=DeltaAppend(), name="few")(
        lambda t: t.where("n > 100")
    )
    scratch.run(stream)
    assert numbers(scratch, stream) == [7]


def test_the_rows_of_all_streaming_sources_are_read_and_those_of_snapshots_are_not(scratch, engine, tmp_path):
    left, right, fixed = (write(engine, tmp_path / name, n) for name, n in (("l", 3), ("r", 5), ("s", 11)))
    source = {"left": left, "right": right, "fixed": fixed.static()}
    stream = Pipeline("shop").stream(source=source, sink=DeltaAppend(), name="both")(
        lambda left, right, fixed: left.union(right).join(fixed.select("id"), "id")
    )
    scratch.run(stream)
    write(engine, tmp_path / "r", 2, start=5)
    scratch.run(stream)
    assert numbers(scratch, stream) == [8, 2]


def test_a_batch_that_a_merge_reads_twice_is_read_once(scratch, engine, tmp_path):
    sink = DeltaMerge(keys=["id"], sequence_by="n", scd_type=2)
    stream = Pipeline("shop").stream(source=write(engine, tmp_path / "t", 9), sink=sink, name="kept")(
        lambda t: t
    )
    scratch.run(stream)
    assert numbers(scratch, stream) == [9]


@pytest.mark.parametrize(
    ("kind", "when"),
    [
        ("feed", "before"),
        ("table", "after"),
        pytest.param("feed", "after", marks=pytest.mark.campaign),
        pytest.param("table", "before", marks=pytest.mark.campaign),
    ],
)
def test_a_batch_that_is_repeated_is_read_once(scratch, engine, tmp_path, kind, when):
    scratch.drop_file("events", events(6))
    feed = Feed("events", format=Json(EVENT), rules={"not_first": "n > 0"})
    source = feed if kind == "feed" else write(engine, tmp_path / "t", 6)
    sinks = [Failing(when=when), DeltaAppend(name="copy")]
    stream = Pipeline("shop").stream(source=source, sink=sinks, name="twice")(lambda rows: rows)
    with raises("query-failed", PURPOSE):
        scratch.run(stream)
    scratch.run(stream)
    assert numbers(scratch, stream) == [6]
    expected = [(e["id"],) for e in events(6)[kind == "feed" :]]
    assert scratch.rows(stream, "id") == multiset(expected)


@dataclass(frozen=True)
class Forgetful(DeltaAppend):
    """Loses what is cached, as a killed executor does."""

    def commit(self, rows, table, transaction, metadata):
        rows.sparkSession.catalog.clearCache()
        super().commit(rows, table, transaction, metadata)


def test_a_feed_whose_cached_records_are_lost_is_read_once(scratch):
    feed = Feed("events", format=Json(EVENT))
    sinks = [Forgetful(name="copy"), DeltaAppend()]
    stream = Pipeline("shop").stream(source=feed, sink=sinks, name="events")(lambda rows: rows)
    scratch.run(stream, [events(8)])
    assert numbers(scratch, stream) == [8]


@pytest.mark.campaign
def test_a_checkpoint_of_a_query_that_counted_nothing_is_continued(scratch, engine, tmp_path, monkeypatch):
    source = write(engine, tmp_path / "t", 4)
    stream = Pipeline("shop").stream(
        source=source,
        sink=DeltaMerge(keys=["odd"], sequence_by="total"),
        query=QueryOptions(output_mode="update"),
        name="totals",
    )(lambda t: t.groupBy((F.col("n") % 2).alias("odd")).agg(F.sum("n").alias("total")))
    with monkeypatch.context() as patched:
        patched.setattr("tidemill.connectors.connector.observed_input", lambda rows, *_: rows)
        scratch.run(stream)
    write(engine, tmp_path / "t", 4, start=4)
    scratch.run(stream)
    assert scratch.rows(stream, "odd", "total") == multiset([(0, 12), (1, 16)])
    assert numbers(scratch, stream) == [4, 4]

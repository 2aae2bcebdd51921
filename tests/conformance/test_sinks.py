"""Rows of the table: what streams write, and how runs begin and end."""

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Timer

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import write_deltalake

from tests.conformance import gallery
from tests.conformance.as_written import assert_refused, flags_of, run_arguments
from tests.conformance.test_operations import VIEWS, views_of
from tests.support.raising import raises
from tests.support.topics import new_topic
from tidemill import (
    BatchSink,
    DeltaAppend,
    DeltaMerge,
    DeltaOverwrite,
    DeltaSource,
    Feed,
    FileSink,
    FileSource,
    Json,
    KafkaSource,
    Pipeline,
    QueryOptions,
)
from tidemill import functions as F
from tidemill.operations.edits.code_changes import code_changes
from tidemill.records.stream_records import StreamRecords
from tidemill.run.execute.pipeline_run import PipelineRun
from tidemill.run.spark.engine import session_of
from tidemill.testing import multiset

pytestmark = [pytest.mark.jvm, pytest.mark.campaign]
ROWS = multiset((view["user"], view["n"]) for run in VIEWS for view in run)


def test_sink_delta(scratch):
    shop = Pipeline("shop")
    views = views_of(shop)

    def same(views):
        return views.select("user", "n")

    streams = [
        shop.stream(source={"views": views}, sink=sink, name=name)(same)
        for name, sink in gallery.sink_delta().items()
    ]

    @shop.stream(source={"views": views}, sink=DeltaOverwrite(), query=QueryOptions(output_mode="complete"))
    def sink_delta_complete(views):
        """The whole result replaces the table with each batch."""
        return views.groupBy("user").count()

    for arriving in VIEWS:
        scratch.run(views, [arriving])
        assert [
            str(result.error) for result in scratch.run_all([*streams, sink_delta_complete]) if result.error
        ] == []
    for stream in streams:
        assert scratch.rows(stream) == ROWS
    assert scratch.lake.table(streams[1].name).open().metadata().partition_columns == ["user"]
    counts = Counter(user for user, _ in ROWS)
    assert scratch.rows(sink_delta_complete) == multiset(counts.items())


def test_sink_merge(scratch):
    shop = Pipeline("shop")
    changes = Feed("changes", format=Json("id STRING, name STRING, op STRING, seq BIGINT"))

    @shop.stream(
        source={"changes": changes},
        sink=DeltaMerge(
            keys=["id"], sequence_by="seq", apply_as_deletes="op = 'delete'", except_columns=["op"]
        ),
    )
    def sink_merge(changes):
        """The current row of each id, whatever the order in which changes arrive."""
        return changes

    @shop.stream(
        source={"changes": changes},
        sink=DeltaMerge(
            keys=["id"],
            sequence_by="seq",
            apply_as_deletes="op = 'delete'",
            except_columns=["op"],
            scd_type=2,
        ),
    )
    def sink_merge_history(changes):
        """Every version of each id, with its validity."""
        return changes

    def change(key, seq, op="upsert"):
        return {"id": key, "name": f"{key}{seq}", "op": op, "seq": seq}

    runs = (
        [change("a", 1), change("b", 5)],
        [change("a", 3), change("b", 2)],
        [change("a", 2), change("b", 6, "delete")],
    )
    for arriving in runs:
        scratch.drop_file("changes", arriving)
        assert [
            str(result.error) for result in scratch.run_all([sink_merge, sink_merge_history]) if result.error
        ] == []
    assert scratch.rows(sink_merge, "id", "name") == multiset([("a", "a3")])
    history = scratch.rows(sink_merge_history, "id", "name", "__START_AT", "__END_AT")
    versions = [("a", 1, 2), ("a", 2, 3), ("a", 3, None), ("b", 2, 5), ("b", 5, 6)]
    assert history == multiset((key, f"{key}{start}", start, end) for key, start, end in versions)


def test_sink_batch(scratch, tmp_path):
    shop = Pipeline("shop")
    views = views_of(shop)
    sinks = gallery.sink_batch(str(tmp_path))
    stream = shop.stream(source={"views": views}, sink=sinks, name="random")(
        lambda views: views.select("user", F.rand().alias("chance"))
    )
    for arriving in VIEWS:
        scratch.run(views, [arriving])
        scratch.run(stream)
    written = [
        [
            json.loads(line)
            for path in (tmp_path / str(n)).glob("*.json")
            for line in path.read_text().splitlines()
        ]
        for n in range(3)
    ]
    assert list(map(len, written)) == list(map(len, VIEWS))
    rows = multiset((row["user"], row["chance"]) for rows in written for row in rows)
    assert scratch.rows(stream) == rows


def test_sink_foreach(scratch, tmp_path):
    shop, path = Pipeline("shop"), tmp_path / "log"
    views = views_of(shop)
    sink = gallery.sink_foreach(str(path))
    stream = shop.stream(source={"views": views}, sink=sink, name="lines")(lambda views: views)
    for arriving in VIEWS:
        scratch.run(views, [arriving])
        scratch.run(stream)
    partitions = [json.loads(line) for line in path.read_text().splitlines()]
    assert {(batch_id, error) for batch_id, error, _ in partitions} == {(n, "None") for n in range(3)}
    assert multiset(row for _, _, rows in partitions for row in rows) == ROWS


def drop_views(scratch, count):
    for n in range(count):
        scratch.drop_file("views", [{"user": "u", "n": n}])


def files_of(scratch, count, *, per_batch):
    """A stream of files that wait, with one row each."""
    feed = Feed("views", format=Json("user STRING, n BIGINT"), max_files_per_batch=per_batch)
    drop_views(scratch, count)
    return Pipeline("shop").stream(source={"views": feed}, sink=DeltaAppend(), name="copied")(
        lambda views: views
    )


def run_by(scratch, stream, command):
    """Return the run that a command starts, and how it follows its source."""
    arguments = run_arguments(command, stream)
    run = PipelineRun([stream], target=scratch.target, engine=scratch.engine, run_id="run", **arguments)
    return run, arguments["follow"]


def table_of(scratch, _broker):
    """A source with five commits, two in a batch."""
    path = str(scratch.landing / "table")
    for n in range(5):
        write_deltalake(path, pa.table({"user": ["u"], "n": [n]}), mode="append")
    return DeltaSource(path=path, max_files_per_batch=2)


def topic_of(scratch, broker):
    """A source with five messages, two in a batch."""
    topic = new_topic(broker, scratch)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(5):
        producer.produce(topic, json.dumps({"user": "u", "n": n}), partition=0)
    assert producer.flush(30) == 0
    return KafkaSource(subscribe=topic, max_records_per_batch=2)


def folder_of(scratch, _broker):
    """A source with five files, two in a batch."""
    drop_views(scratch, 5)
    path = str(scratch.landing / "views")
    return FileSource(path=path, format="json", schema="user STRING, n BIGINT", max_files_per_batch=2)


@pytest.mark.kafka
@pytest.mark.parametrize("source_of", [folder_of, table_of, topic_of], ids=["files", "delta", "kafka"])
def test_trig_now(scratch, broker, tmp_path, source_of):
    """All that is there in limited batches; first the one that an error left over."""
    fails, source = tmp_path / "fails", source_of(scratch, broker)

    def check(_rows, batch):
        if batch.batch_id == 1 and fails.exists():
            raise ValueError("stopped")

    def parsed(views):
        view = F.from_json(F.col("value").cast("string"), "user STRING, n BIGINT").alias("view")
        return views.select(view).select("view.*")

    stream = Pipeline("shop").stream(
        source={"views": source}, sink=[BatchSink(check, name="check"), DeltaAppend()], name="copied"
    )(parsed if source_of is topic_of else lambda views: views)
    fails.touch()
    run, _ = run_by(scratch, stream, gallery.trig_now())
    [result] = run.iter_results()
    assert result.error.code == "query-failed"
    assert scratch.rows(stream) == multiset(("u", n) for n in range(2))
    fails.unlink()
    [result] = scratch.run(stream)
    assert [(batch.batch_id, batch.rows_read) for batch in result.batches] == [(1, 2), (2, 1)]
    assert [result.outcome for result in scratch.run(stream)] == ["idle"]
    assert scratch.rows(stream) == multiset(("u", n) for n in range(5))


def test_trig_now_moves_the_watermark(scratch):
    """Batch by batch, and one without data at the end, which writes what the last row closes."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for n in range(3):
        scratch.drop_file("events", [{"at": (start + timedelta(minutes=10 * n)).isoformat()}])
    source = FileSource(
        path=str(scratch.landing / "events"), format="json", schema="at TIMESTAMP", max_files_per_batch=1
    )
    stream = Pipeline("shop").stream(
        source=source.with_watermark("at", "0 seconds"), sink=DeltaAppend(), name="windows"
    )(
        lambda events: (
            events.groupBy(F.window("at", "10 minutes").alias("w")).count().select("w.start", "count")
        )
    )
    [result] = scratch.run(stream)
    assert [batch.rows_read for batch in result.batches] == [1, 1, 1, 0]
    minutes = [
        batch.watermark_ms and (batch.watermark_ms / 1000 - start.timestamp()) / 60
        for batch in result.batches
    ]
    assert [minute for minute in minutes if minute and minute >= 0] == [10, 20]
    assert scratch.rows(stream) == multiset((start + timedelta(minutes=10 * n), 1) for n in range(2))


@pytest.mark.parametrize(
    "command", [gallery.trig_default, gallery.trig_time], ids=["trig_default", "trig_time"]
)
def test_row(scratch, command):
    """A query that follows its source: as fast as it can, and every two seconds."""
    stream = files_of(scratch, 1, per_batch=1)
    scratch.run(stream)
    run, follow = run_by(scratch, stream, command())
    timers = [Timer(1 + 3 * n, scratch.drop_file, ["views", [{"user": "u", "n": n}]]) for n in (1, 2, 3)]
    timers.append(Timer(follow.length.total_seconds(), follow.ended.set))
    for timer in timers:
        timer.start()
    [result] = run.iter_results()
    assert (result.outcome, len(result.batches)) == ("updated", 3)
    assert scratch.rows(stream) == multiset(("u", n) for n in range(4))
    if follow.every:
        starts = [datetime.fromisoformat(batch.started_at).timestamp() for batch in result.batches]
        assert len({start // 2 for start in starts}) == 3, "no interval has two batches"


def test_trig_once(scratch):
    stream = files_of(scratch, 5, per_batch=2)
    run, _ = run_by(scratch, stream, gallery.trig_once())
    [result] = run.iter_results()
    assert [batch.rows_read for batch in result.batches] == [5], "in one batch, without the limits"
    assert scratch.rows(stream) == multiset(("u", n) for n in range(5))


@pytest.mark.timeout(1800)
def test_mon_progress(scratch):
    """The ledger has the batches that Spark no longer keeps the progress of."""
    kept = QueryOptions(options={"spark.sql.streaming.numRecentProgressUpdates": "3"})
    stream = replace(files_of(scratch, 8, per_batch=1), query=kept)
    scratch.run(stream)
    with session_of(scratch.engine) as spark:
        lines = spark.sql(gallery.mon_progress().replace("/srv/shop/lake", scratch.lake.uri)).collect()
    assert [line[:3] for line in lines] == [(n, 1, False) for n in range(8)]
    assert all(line["triggerExecution"] > 0 for line in lines)


def test_rec_restart(scratch, tmp_path):
    """An error stops a batch, and the next run repeats it; test_stateful.py kills runs."""
    shop, stop = Pipeline("shop"), tmp_path / "stop"
    views = views_of(shop)

    def checked(_rows, _batch):
        if stop.exists():
            raise ValueError("stopped")

    @shop.stream(
        source={"views": views},
        sink=[BatchSink(checked, name="check"), DeltaMerge(keys=["user"])],
        query=QueryOptions(output_mode="update"),
    )
    def rec_restart(views):
        """Counts, which an error in another sink of the batch leaves as they were."""
        return views.groupBy("user").count()

    scratch.run(views, [VIEWS[0]])
    scratch.run(rec_restart)
    scratch.run(views, [VIEWS[1]])
    stop.touch()
    with raises("query-failed", "stopped"):
        scratch.run(rec_restart)
    stop.unlink()
    scratch.run(views, [VIEWS[2]])
    scratch.run(rec_restart)
    users = Counter(user for user, _ in ROWS.elements())
    assert scratch.rows(rec_restart) == multiset(users.items())


def test_sink_file_text_and_retention(scratch, tmp_path):
    """Files that are older than the retention leave the log, which Spark reads, with the tenth batch."""
    folder = str(tmp_path / "out")
    stream = replace(
        files_of(scratch, 10, per_batch=1),
        sinks=(FileSink(folder, "text", retention="1 millisecond"), DeltaAppend()),
    )
    stream = replace(stream, function=lambda views: views.select(F.col("n").cast("string")))
    scratch.run(stream)
    with session_of(scratch.engine) as spark:
        left = multiset(map(tuple, spark.read.text(folder).collect()))
    written = multiset(
        (line,) for path in Path(folder).glob("part-*.txt") for line in path.read_text().splitlines()
    )
    assert written == scratch.rows(stream) == multiset((str(n),) for n in range(10)), "no file is deleted"
    assert left < written


@pytest.mark.parametrize("format", ["json", "parquet", "orc", "avro", "csv"])
def test_sink_file(scratch, tmp_path, format):
    shop, folder = Pipeline("shop"), str(tmp_path / "out")
    views = views_of(shop)

    @shop.stream(source={"views": views}, sink=FileSink(folder, format))
    def sink_file(views):
        """Files of each batch, which readers of Spark see once."""
        return views.select("user", "n")

    for arriving in VIEWS:
        scratch.run(views, [arriving])
        scratch.run(sink_file)
    with session_of(scratch.engine) as spark:
        rows = spark.read.format(format).schema("user STRING, n BIGINT").load(folder).collect()
    assert multiset(map(tuple, rows)) == ROWS


def test_sink_console(scratch, capfd):
    shop = Pipeline("shop")
    views = views_of(shop)
    stream = shop.stream(source={"views": views}, sink=gallery.sink_console(), name="sink_console")(
        lambda views: views.select("user", "n")
    )
    scratch.run(views, [VIEWS[0]])
    scratch.run(stream)
    assert "u1    1" in capfd.readouterr().err
    assert_refused("sink-for-debugging", gallery.sink_console_refused)


def test_sink_memory(scratch):
    shop, seen = Pipeline("shop"), gallery.sink_memory()
    views = views_of(shop)
    stream = shop.stream(source={"views": views}, sink=seen, name="sink_memory")(
        lambda views: views.select("user", "n")
    )
    for arriving in VIEWS:
        scratch.run(views, [arriving])
        scratch.run(stream)
    assert multiset(map(tuple, seen.rows())) == ROWS
    assert_refused("sink-for-debugging", gallery.sink_memory_refused)


def test_mgmt(scratch):
    shop = Pipeline("shop")
    views = views_of(shop)

    @shop.stream(source={"views": views}, sink=DeltaAppend())
    def mgmt(views):
        """A query, which keeps its id over all runs."""
        return views.select("user", "n")

    @shop.stream(source={"views": views}, sink=DeltaAppend())
    def mgmt_other(views):
        """Another query of the same run."""
        return views.select("user", "n")

    @shop.stream(source={"views": views}, sink=DeltaAppend())
    def mgmt_failing(views):
        """A query whose error leaves the other ones as they are."""
        return views.withColumn("n", F.raise_error(F.lit("on purpose")).cast("bigint"))

    streams = [mgmt, mgmt_other]
    queries = []
    for arriving in VIEWS:
        scratch.run(views, [arriving])
        one, two, failed = scratch.run_all([*streams, mgmt_failing])
        assert (one.outcome, two.outcome, failed.outcome) == ("updated", "updated", "failed")
        assert "on purpose" in str(failed.error)
        queries.append(
            [StreamRecords(scratch.lake, stream.name).snapshot().tail.query_id for stream in streams]
        )
    assert queries == [queries[0]] * 3, "a query keeps its id over runs"
    assert queries[0][0] != queries[0][1]
    assert scratch.rows(mgmt) == scratch.rows(mgmt_other) == ROWS


def test_rec_change(scratch):
    shop = Pipeline("shop")
    views = views_of(shop)

    def declared(function):
        return Pipeline("shop").stream(
            source={"views": views},
            sink=DeltaMerge(keys=["user"]),
            query=QueryOptions(output_mode="update"),
            name="rec_change",
        )(function)

    def changed(function):
        [change] = code_changes([declared(function)], scratch.target, scratch.engine)
        return change.kind

    codes = gallery.rec_change()
    scratch.run(views, [VIEWS[0]])
    scratch.run(declared(codes["nothing"]))
    assert flags_of(gallery.rec_change_plan())["selection"] == ("shop/rec_change",)
    assert {kind: changed(function) for kind, function in codes.items()} == {kind: kind for kind in codes}

"""Rows of the table: what streams write, and how runs begin and end."""

import json
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from threading import Timer

import pytest

from tests.conformance.test_operations import VIEWS, views_of
from tests.raising import raises
from tests.recorded import calls, recording
from tests.sinks.foreach_streams import Log
from tidemill import (
    BatchSink,
    ConsoleSink,
    DeltaAppend,
    DeltaMerge,
    DeltaOverwrite,
    Feed,
    FileSink,
    ForeachSink,
    Json,
    MemorySink,
    Pipeline,
    QueryOptions,
)
from tidemill import functions as F
from tidemill.operations.edits.code_changes import code_changes
from tidemill.records.stream_records import StreamRecords
from tidemill.run.execute.follow import Follow
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

    tables = {
        "plain": DeltaAppend(),
        "partitioned": DeltaAppend(partition_by=["user"]),
        "clustered": DeltaAppend(cluster_by=["user"]),
    }
    streams = [
        shop.stream(source={"views": views}, sink=sink, name=name)(same) for name, sink in tables.items()
    ]

    @shop.stream(source={"views": views}, sink=DeltaOverwrite(), query=QueryOptions(output_mode="complete"))
    def sink_delta(views):
        """The whole result replaces the table with each batch."""
        return views.groupBy("user").count()

    for arriving in VIEWS:
        scratch.run(views, [arriving])
        assert [str(result.error) for result in scratch.run_all([*streams, sink_delta]) if result.error] == []
    for stream in streams:
        assert scratch.rows(stream) == ROWS
    assert scratch.lake.table(streams[1].name).open().metadata().partition_columns == ["user"]
    counts = Counter(user for user, _ in ROWS)
    assert scratch.rows(sink_delta) == multiset(counts.items())


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
    path = tmp_path / "calls"

    @shop.stream(source={"views": views}, sink=[recording(path, "user", "chance"), DeltaAppend()])
    def sink_batch(views):
        """A function gets the rows of each batch, the very ones that the table gets."""
        return views.select("user", F.rand().alias("chance"))

    for arriving in VIEWS:
        scratch.run(views, [arriving])
        scratch.run(sink_batch)
    given = calls(path)
    assert [call.batch_id for call in given] == [0, 1, 2]
    assert sum((call.rows for call in given), Counter()) == scratch.rows(sink_batch)


def test_sink_foreach(scratch, tmp_path):
    shop, path = Pipeline("shop"), str(tmp_path / "calls")
    views = views_of(shop)

    @shop.stream(source={"views": views}, sink=ForeachSink(Log(path)))
    def sink_foreach(views):
        """Each row goes to an object with open, process and close."""
        return views.select(F.col("user").alias("shop"), F.col("n").alias("amount"))

    for arriving in VIEWS:
        scratch.run(views, [arriving])
        scratch.run(sink_foreach)
    made = [json.loads(line) for line in Path(path).read_text().splitlines()]
    assert multiset(call[1:] for call in made if call[0] == "process") == ROWS
    assert {call[2] for call in made if call[0] == "open"} == {0, 1, 2}
    assert {call[1] for call in made if call[0] == "close"} == {"None"}


def files_of(scratch, count, *, per_batch):
    """A stream of files that wait, with one row each."""
    feed = Feed("views", format=Json("user STRING, n BIGINT"), max_files_per_batch=per_batch)
    for n in range(count):
        scratch.drop_file("views", [{"user": "u", "n": n}])
    return Pipeline("shop").stream(source={"views": feed}, sink=DeltaAppend(), name="copied")(
        lambda views: views
    )


def test_trig_now(scratch):
    stream = files_of(scratch, 5, per_batch=2)
    [result] = scratch.run(stream)
    assert [batch.rows_read for batch in result.batches] == [2, 2, 1]
    assert [result.outcome for result in scratch.run(stream)] == ["idle"]
    assert scratch.rows(stream) == multiset(("u", n) for n in range(5))


@pytest.mark.parametrize("every", [0, 2], ids=["trig_default", "trig_time"])
def test_row(scratch, every):
    """A query that follows its source: as fast as it can, and every two seconds."""
    stream = files_of(scratch, 1, per_batch=1)
    scratch.run(stream)
    follow = Follow(every=timedelta(seconds=every))
    run = PipelineRun([stream], target=scratch.target, engine=scratch.engine, run_id="follow", follow=follow)
    timers = [Timer(1 + 3 * n, scratch.drop_file, ["views", [{"user": "u", "n": n}]]) for n in (1, 2, 3)]
    timers.append(Timer(25, follow.ended.set))
    for timer in timers:
        timer.start()
    [result] = run.iter_results()
    assert (result.outcome, len(result.batches)) == ("updated", 3)
    assert scratch.rows(stream) == multiset(("u", n) for n in range(4))
    if every:
        starts = [datetime.fromisoformat(batch.started_at).timestamp() for batch in result.batches]
        assert all(start % 2 < 0.5 for start in starts), "Spark starts them at multiples of the interval"


def test_trig_once(scratch):
    stream = files_of(scratch, 5, per_batch=2)
    run = PipelineRun([stream], target=scratch.target, engine=scratch.engine, run_id="once", once=True)
    [result] = run.iter_results()
    assert [batch.rows_read for batch in result.batches] == [5], "in one batch, without the limits"
    assert scratch.rows(stream) == multiset(("u", n) for n in range(5))


def test_mon_progress(scratch):
    stream = files_of(scratch, 105, per_batch=1)
    scratch.run(stream)
    lines = sorted(StreamRecords(scratch.lake, stream.name).ledger.lines(), key=lambda line: line.batch_id)
    assert [(line.batch_id, line.rows_read, line.reconstructed) for line in lines] == [
        (n, 1, False) for n in range(105)
    ]


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


@pytest.mark.parametrize("format", ["json", "parquet", "orc", "csv"])
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
    stream = shop.stream(source={"views": views}, sink=ConsoleSink(debug=True), name="sink_console")(
        lambda views: views.select("user", "n")
    )
    scratch.run(views, [VIEWS[0]])
    scratch.run(stream)
    assert "u1    1" in capfd.readouterr().err
    with raises("sink-for-debugging"):
        ConsoleSink()


def test_sink_memory(scratch):
    shop, seen = Pipeline("shop"), MemorySink("seen", debug=True)
    views = views_of(shop)
    stream = shop.stream(source={"views": views}, sink=seen, name="sink_memory")(
        lambda views: views.select("user", "n")
    )
    for arriving in VIEWS:
        scratch.run(views, [arriving])
        scratch.run(stream)
    assert multiset(map(tuple, seen.rows())) == ROWS
    with raises("sink-for-debugging"):
        MemorySink("seen")


def test_mgmt(scratch):
    shop = Pipeline("shop")
    views = views_of(shop)
    streams = [
        shop.stream(source={"views": views}, sink=DeltaAppend(), name=name)(lambda views: views)
        for name in ("one", "two")
    ]
    bad = shop.stream(source={"views": views}, sink=DeltaAppend(), name="bad")(
        lambda views: views.withColumn("n", F.raise_error(F.lit("on purpose")).cast("bigint"))
    )
    queries = []
    for arriving in VIEWS:
        scratch.run(views, [arriving])
        one, two, failed = scratch.run_all([*streams, bad])
        assert (one.outcome, two.outcome, failed.outcome) == ("updated", "updated", "failed")
        assert "on purpose" in str(failed.error)
        queries.append(
            [StreamRecords(scratch.lake, stream.name).snapshot().tail.query_id for stream in streams]
        )
    assert queries == [queries[0]] * 3, "a query keeps its id over runs"
    assert queries[0][0] != queries[0][1]
    assert scratch.rows(streams[0], "user", "n") == scratch.rows(streams[1], "user", "n") == ROWS


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

    def counted(views):
        return views.groupBy("user").count()

    scratch.run(views, [VIEWS[0]])
    scratch.run(declared(counted))
    assert changed(counted) == "nothing"
    assert changed(lambda views: views.groupBy("user").count().where("count > 0")) == "safe"
    assert changed(lambda views: views.groupBy("user").agg(F.max("n").alias("count"))) == "mixes_state"
    assert changed(lambda views: views.groupBy("user", "n").count()) in ("mixes_state", "refused_by_spark")

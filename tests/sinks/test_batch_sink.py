"""A user's own foreachBatch output, next to a table and alone, compared with plain Python."""

from collections import Counter
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F

from tests.support.raising import raises
from tests.support.recorded import calls, recording
from tidemill import BatchSink, DeltaAppend, DeltaMerge, Expect, Feed, Json, Pipeline, QueryOptions
from tidemill.checkpoint import commit_batches
from tidemill.checks.evaluation import evaluate
from tidemill.operations.generations.rewind import rewind
from tidemill.operations.quarantine.quarantine_replay import replay_quarantine
from tidemill.operations.replay.rebuild import rebuild
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.status import status_of
from tidemill.testing import multiset

SALE = "shop STRING, amount BIGINT"
ARRIVALS = [[("a", 5), ("b", 3), ("a", 5)], [("b", 1)], [("c", 7), ("a", 2)]]


def sales(shop, amount):
    return {"shop": shop, "amount": amount}


def arrivals():
    return [[sales(*sale) for sale in arrival] for arrival in ARRIVALS]


def sales_stream(*sinks, pipeline=None, function=lambda sales: sales, **declared):
    feed = Feed("sales", format=Json(SALE), rules={"positive": "amount > 0"}, max_files_per_batch=1)
    pipeline = pipeline or Pipeline("shops")
    return pipeline.stream(source=feed, sink=list(sinks), name="sales", **declared)(function)


def committed(scratch, stream):
    return scratch.table_rows(scratch.lake.table(stream.name), "batch_id", "rows")


def failed_checks(scratch, stream):
    results = evaluate(stream, scratch.target, datetime.now(UTC))
    return [result.name for result in results if not result.passed]


def test_next_to_a_table_it_gets_the_very_rows_of_the_table(scratch, tmp_path):
    """A random number is the same in both, so that the batch was computed once."""
    stream = sales_stream(
        recording(tmp_path / "calls", "shop", "amount", "chance"),
        DeltaAppend(),
        function=lambda sales: sales.withColumn("chance", F.rand()),
        expect=[Expect("no_c", "shop != 'c'", on_violation="drop")],
    )
    results = scratch.run(stream, arrivals())
    batches = calls(tmp_path / "calls")
    assert sum((call.rows for call in batches), Counter()) == scratch.rows(stream, "shop", "amount", "chance")
    assert [multiset(row[:2] for row in call.rows.elements()) for call in batches] == [
        multiset(sale for sale in arrival if sale[0] != "c") for arrival in ARRIVALS
    ]
    assert [(call.stream, call.batch_id) for call in batches] == [("shops/sales", n) for n in range(3)]
    query_id = StreamRecords(scratch.lake, stream.name).snapshot().tail.query_id
    assert {call.query_id for call in batches} == {query_id}
    assert [result.total("rows_written") for result in results] == [3, 1, 1]
    assert failed_checks(scratch, stream) == ["no_c"]


def test_alone_it_has_a_table_of_its_commits(scratch, tmp_path):
    stream = sales_stream(recording(tmp_path / "calls", "shop", "amount"))
    results = scratch.run(stream, [[*arrivals()[0], sales("bad", 0)], *arrivals()[1:]])
    assert [call.rows for call in calls(tmp_path / "calls")] == list(map(multiset, ARRIVALS))
    assert committed(scratch, stream) == multiset(enumerate(map(len, ARRIVALS)))
    assert [result.total("rows_written") for result in results] == [3, 1, 2]
    assert [result.total("rows_quarantined") for result in results] == [1, 0, 0]
    assert sum(scratch.quarantined(stream).values()) == 1
    assert scratch.run(stream)[0].outcome == "idle"
    assert status_of(stream, scratch.target).state == "idle"
    assert failed_checks(scratch, stream) == []


@pytest.mark.campaign
def test_an_aggregation_in_update_mode_is_given_batch_by_batch(scratch, tmp_path):
    pipeline = Pipeline("shops")
    upstream = sales_stream(DeltaAppend(), pipeline=pipeline)
    stream = pipeline.stream(
        source=upstream,
        sink=recording(tmp_path / "calls", "shop", "total"),
        query=QueryOptions(output_mode="update"),
        name="totals",
    )(lambda sales: sales.groupBy("shop").agg(F.sum("amount").alias("total")))
    totals, expected = Counter(), []
    for arrival in ARRIVALS:
        for shop, amount in arrival:
            totals[shop] += amount
        expected.append(multiset((shop, totals[shop]) for shop in {shop for shop, _ in arrival}))
    for arrival in arrivals():
        scratch.run(upstream, [arrival])
        scratch.run(stream)
    assert [call.rows for call in calls(tmp_path / "calls")] == expected
    assert committed(scratch, stream) == multiset((n, len(rows)) for n, rows in enumerate(expected))


def fail_once(path):
    if not path.exists():
        path.touch()
        raise KeyError("no such place")


@pytest.mark.parametrize(
    "tables",
    [
        pytest.param((), id="alone", marks=pytest.mark.campaign),
        pytest.param((DeltaAppend(),), id="with a table"),
    ],
)
def test_an_error_of_the_function_commits_nothing_and_the_batch_is_repeated(scratch, tmp_path, tables):
    failed = tmp_path / "failed"
    failing = BatchSink(lambda _rows, _batch: fail_once(failed), name="failing")
    stream = sales_stream(recording(tmp_path / "calls", "shop", "amount"), failing, *tables)
    with raises("query-failed", "KeyError: 'no such place'"):
        scratch.run(stream, arrivals()[:1])
    assert list(commit_batches(scratch.checkpoint(stream.name))) == []
    scratch.run(stream)
    first, again = calls(tmp_path / "calls")
    assert first == again
    assert first.rows == multiset(ARRIVALS[0])


@pytest.mark.campaign
def test_a_rewind_gives_the_rows_again_with_another_query_id(scratch, tmp_path):
    stream = sales_stream(recording(tmp_path / "calls", "shop", "amount"))
    scratch.run(stream, arrivals())
    change = rewind(stream, scratch.target, scratch.engine, to_batch=0)
    assert "given to record again, with another query id" in " ".join(change.effects)
    scratch.run(stream)
    batches = calls(tmp_path / "calls")
    assert sum((call.rows for call in batches[3:]), Counter()) == sum(map(multiset, ARRIVALS[1:]), Counter())
    assert len({call.query_id for call in batches}) == 2
    assert committed(scratch, stream) == multiset(enumerate(map(len, ARRIVALS)))


@pytest.mark.campaign
def test_a_rebuild_replaces_tables_and_does_not_call_the_function(scratch, tmp_path):
    merge = DeltaMerge(keys=["shop"], sequence_by="amount")
    stream = sales_stream(recording(tmp_path / "calls", "shop"), merge)
    scratch.run(stream, arrivals())
    before = scratch.rows(stream, "shop", "amount")
    change = rebuild(stream, scratch.target, scratch.engine)
    assert "Only tables are replaced: no rows are given to record." in change.effects
    assert scratch.rows(stream, "shop", "amount") == before
    assert len(calls(tmp_path / "calls")) == len(ARRIVALS)
    scratch.run(stream, [[sales("d", 1)]])
    [*_, last] = calls(tmp_path / "calls")
    assert last.rows == multiset([("d",)])


@pytest.mark.campaign
def test_a_replay_gives_the_function_what_passes_now(scratch, tmp_path):
    sink = recording(tmp_path / "calls", "shop", "amount")
    scratch.run(sales_stream(sink), [[sales("a", 1), sales("b", -1), sales("c", -9)]])
    feed = Feed("sales", format=Json(SALE), rules={"positive": "amount > -5"})
    stream = Pipeline("shops").stream(source=feed, sink=sink, name="sales")(lambda sales: sales)
    done = replay_quarantine(stream, scratch.target, scratch.engine)
    first, replayed = calls(tmp_path / "calls")
    assert (first.rows, replayed.rows) == (multiset([("a", 1)]), multiset([("b", -1)]))
    assert (replayed.query_id, replayed.batch_id) == (done.operation, 0)
    assert sum(scratch.quarantined(stream).values()) == 1

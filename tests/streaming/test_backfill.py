"""Backfills: a range is computed again beside the live stream, and nothing else changes."""

import json
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as F

from pipelines.streaming import DeltaAppend, DeltaMerge, Feed, Pipeline, delta_log, from_json
from pipelines.streaming.checks.evaluation import evaluate
from pipelines.streaming.errors import TerminalError, UpstreamChangeError
from pipelines.streaming.lifecycle import backfill, follow_backfills
from pipelines.streaming.lifecycle.backfill import STEPS
from pipelines.streaming.records import StreamRecords
from pipelines.streaming.testing import multiset
from tests.streaming.test_rewind import Killed, steps

EVENT = "id STRING, amount BIGINT, at TIMESTAMP"
DAY = datetime(2026, 1, 1, tzinfo=UTC)
MODULE = "pipelines.streaming.lifecycle.backfill"
RANGE = {"begin": "2026-01-02", "end": "2026-01-03"}


def shop(*, least=0, most=100, extra=0) -> Pipeline:
    """An ingest stream, a deduplication and a count per hour; the arguments are what the code changes."""
    pipeline = Pipeline("shop")

    @pipeline.stream(
        source=Feed(
            "orders", value=from_json(EVENT), quarantine={"enough": f"amount > {least} AND amount <= {most}"}
        ),
        sink=DeltaAppend(partition_by=["day"]),
        backfill_by="day",
    )
    def orders(events):
        return events.withColumn("day", F.to_date("at")).withColumn("amount", F.col("amount") + extra)

    @pipeline.stream(
        source=orders.with_watermark("at", "1 hour"),
        sink=DeltaAppend(partition_by=["day"]),
        backfill_by="day",
    )
    def unique(orders):
        return orders.dropDuplicatesWithinWatermark(["id"])

    @pipeline.stream(source=unique.with_watermark("at", "1 hour"), sink=DeltaAppend(), backfill_by="start")
    def hours(unique):
        counts = unique.groupBy(F.window("at", "1 hour").alias("w")).agg(F.sum("amount").alias("amount"))
        return counts.select("w.start", "amount")

    @pipeline.stream(source=orders, sink=DeltaMerge(keys=["id"], sequence_by="at"), backfill_by="at")
    def newest(orders):
        return orders.select("id", "amount", "at")

    return pipeline


def events_of(day):
    """Events of one day, an hour apart, each of them twice."""
    moments = [DAY + timedelta(days=day, hours=hour) for hour in range(0, 24, 4)]
    made = [{"id": f"{day}-{m.hour}", "amount": m.hour + 1, "at": m.isoformat()} for m in moments]
    return made + made


def arrive(scratch, *days):
    scratch.drop_file("orders", [event for day in days for event in events_of(day)])


def run(scratch, pipeline, *names):
    for result in scratch.run_all([pipeline[name] for name in names]):
        assert result.error is None, result.error


def expected(days, *, changed=(), least=0, extra=0):
    """The tables of these days, as plain Python; the changed ones as the changed code makes them."""
    orders, hours = [], []
    for day in days:
        for event in events_of(day):
            bound, more = (least, extra) if day in changed else (0, 0)
            if event["amount"] > bound:
                orders.append((event["id"], event["amount"] + more))
                hours.append((datetime.fromisoformat(event["at"]), event["amount"] + more))
    return multiset(orders), multiset(set(orders)), multiset(set(hours))


def again(scratch, stream, **flags):
    return backfill(stream, scratch.target, scratch.engine, **(RANGE | flags))


def is_exact(scratch, stream):
    results = evaluate(stream, scratch.target, datetime.now(UTC))
    (exactly_once,) = [result for result in results if result.name == "exactly_once"]
    assert exactly_once.passed, exactly_once


def test_a_day_is_replayed_with_a_changed_rule_while_the_stream_goes_on(scratch, monkeypatch):
    pipeline, changed = shop(), shop(least=8, extra=100)
    orders, unique, hours = (changed[name] for name in ("orders", "unique", "hours"))
    for day in range(4):
        arrive(scratch, day)
        run(scratch, pipeline, "orders", "unique", "hours")
    rows, distinct, counts = expected(range(4))
    assert scratch.rows(orders, "id", "amount") == rows
    before = delta_log.latest_version(scratch.lake.table(orders.name))

    def meanwhile(*_, **__):
        arrive(scratch, 4)
        run(scratch, pipeline, "orders")

    with monkeypatch.context() as patched:
        patched.setattr(sys.modules[MODULE], "wait_until_free", meanwhile)
        done = again(scratch, orders)
    assert "The range had 12 rows and has 8 rows: 8 added, 12 removed" in done.outcome
    rows, _, _ = expected(range(5), changed=[1], least=8, extra=100)
    assert scratch.rows(orders, "id", "amount") == rows
    assert sum(scratch.quarantined(orders).values()) == 4
    commits = list(delta_log.commits(scratch.lake.table(orders.name), before + 1))
    assert [commit.removes_rows for commit in commits] == [False, True], "the live batch, and one commit"
    is_exact(scratch, orders)

    (refused,) = scratch.run_all([unique])
    assert isinstance(refused.error, UpstreamChangeError)
    assert "tidemill backfill shop/unique --from 2026-01-02 --to 2026-01-03 --downstream" in refused.error.fix
    for stream in (unique, hours):
        follow_backfills(stream, scratch.target, scratch.engine, "follow")
        again(scratch, stream)
    run(scratch, pipeline, "unique", "hours")
    _, distinct, counts = expected(range(5), changed=[1], least=8, extra=100)
    assert scratch.rows(unique, "id", "amount") == distinct
    closed = {(start, amount) for start, amount in counts if start <= DAY + timedelta(days=4, hours=18)}
    assert scratch.rows(hours) == multiset(closed)
    for stream in (unique, hours):
        is_exact(scratch, stream)
    (operation,) = StreamRecords(scratch.lake, hours.name).operations()
    assert operation.result["rows_before"] == 6


@pytest.mark.parametrize("files", [1, 3])
def test_each_record_is_in_the_table_or_in_quarantine(scratch, files):
    """The rule changes both ways, days share a file, and a record is in its file twice."""
    first, changed = shop(least=8)["orders"], shop(least=4, most=16)["orders"]
    for days in ([0, 1, 2],) if files == 1 else ([0], [1], [2]):
        scratch.drop_file("orders", [*(event for day in days for event in events_of(day)), "no record"])
        scratch.run(first)
    again(scratch, changed)
    rows = Counter(amount for _, amount in scratch.rows(changed, "id", "amount").elements())
    refused = Counter()
    for (raw,) in scratch.quarantined(changed, "raw").elements():
        refused["no record" if raw == "no record" else json.loads(raw)["amount"]] += 1
    # Amounts are 1, 5, 9, 13, 17 and 21, each twice a day; the second day has the new rule.
    assert rows == {5: 2, 9: 6, 13: 6, 17: 4, 21: 4}
    assert refused == {1: 6, 5: 4, 17: 2, 21: 2, "no record": files}


def test_a_range_that_is_right_already_is_not_written(scratch):
    orders = shop()["orders"]
    for day in range(3):
        arrive(scratch, day)
    scratch.run(orders)
    table = scratch.lake.table(orders.name)
    version = delta_log.latest_version(table)
    assert "0 added, 0 removed" in again(scratch, orders).outcome
    assert delta_log.latest_version(table) == version
    assert scratch.rows(orders, "id", "amount") == expected(range(3))[0]


@pytest.mark.parametrize("step", steps(STEPS))
def test_a_day_that_a_delete_removed_is_restored_also_after_a_kill(scratch, monkeypatch, step):
    orders = shop()["orders"]
    for day in range(3):
        arrive(scratch, day)
    scratch.run(orders)
    table = scratch.lake.table(orders.name)
    scratch.engine.new().sql(f"DELETE FROM delta.`{table}` WHERE day = '2026-01-02'")  # noqa: S608 - the test's own

    def killed(point, _stream):
        if point == f"backfill-{step}":
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("pipelines.streaming.lifecycle.steps.pause_point", killed)
        with pytest.raises(Killed):
            again(scratch, orders)
    with pytest.raises(TerminalError, match="is not finished"):
        again(scratch, orders, end="2026-01-04")
    again(scratch, orders)
    assert scratch.rows(orders, "id", "amount") == expected(range(3))[0]
    arrive(scratch, 3)
    scratch.run(orders)
    assert scratch.rows(orders, "id", "amount") == expected(range(4))[0]


def test_what_cannot_be_computed_for_a_range_is_refused_before_anything_is_written(scratch):
    pipeline = shop()
    orders, newest = pipeline["orders"], pipeline["newest"]
    with pytest.raises(TerminalError, match="it has read nothing so far"):
        again(scratch, orders)
    for day in range(3):
        arrive(scratch, day)
        run(scratch, pipeline, "orders", "newest")
    with pytest.raises(TerminalError, match="running totals or current versions"):
        again(scratch, newest)
    with pytest.raises(TerminalError, match="the range from 2026-01-03 to 2026-01-03 is empty"):
        again(scratch, orders, begin="2026-01-03", end="2026-01-03")
    with pytest.raises(TerminalError, match="'yesterday' is no date"):
        again(scratch, orders, begin="yesterday")
    second = sorted((scratch.landing / "orders").iterdir())[1]
    second.unlink()
    with pytest.raises(TerminalError, match=rf"1 file of feed orders are missing: {second.name}"):
        again(scratch, orders)
    assert StreamRecords(scratch.lake, orders.name).operation() is None
    again(scratch, orders, begin="2026-01-03", end="2026-01-04")
    assert scratch.rows(orders, "id", "amount") == expected(range(3))[0], "another day does not need the file"

"""Backfills: a range is computed again beside the live stream, and nothing else changes."""

import json
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from tests.operations.test_rewind import Killed, steps
from tests.support.raising import raises
from tidemill import DeltaAppend, DeltaMerge, Feed, Json, Pipeline, QueryOptions
from tidemill.checks.evaluation import evaluate
from tidemill.errors import UpstreamChangeError
from tidemill.operations.replay.backfill import backfill
from tidemill.operations.replay.backfill_steps import STEPS, Backfilling
from tidemill.operations.replay.follow import follow_backfills
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.table_ref import TableRef
from tidemill.testing import multiset

EVENT = "id STRING, amount BIGINT, at TIMESTAMP"
DAY = datetime(2026, 1, 1, tzinfo=UTC)
MODULE = "tidemill.operations.core.steps"
RANGE = {"begin": "2026-01-02", "end": "2026-01-03"}


def shop(*, least=0, most=100, extra=0) -> Pipeline:
    """An ingest stream, a deduplication and a count per hour; the arguments are what the code changes."""
    pipeline = Pipeline("shop")

    @pipeline.stream(
        source=Feed("orders", format=Json(EVENT), rules={"enough": f"amount > {least} AND amount <= {most}"}),
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

    @pipeline.stream(
        source=orders,
        sink=DeltaMerge(keys=["day"]),
        query=QueryOptions(output_mode="update"),
        backfill_by="day",
    )
    def totals(orders):
        return orders.groupBy("day").agg(F.sum("amount").alias("amount"))

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
    for days in ((0, 1), (2, 3)):
        arrive(scratch, *days)
        run(scratch, pipeline, "orders", "unique", "hours")
    rows, distinct, counts = expected(range(4))
    assert scratch.rows(orders, "id", "amount") == rows
    before = scratch.lake.table(orders.name).log.latest_version()

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
    commits = list(scratch.lake.table(orders.name).log.commits(before + 1))
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


@pytest.mark.campaign
def test_a_backfill_killed_while_it_catches_up_misses_nothing_that_arrives_afterwards(scratch, monkeypatch):
    first, changed = shop()["orders"], shop(extra=100)["orders"]
    for day in range(3):
        arrive(scratch, day)
    scratch.run(first)

    def meanwhile(*_, **__):
        arrive(scratch, 1)
        scratch.run(first)

    runs, run_staged = iter(("compute",)), Backfilling.run

    def killed(self, **flags):
        if next(runs, None) is None:
            raise Killed
        return run_staged(self, **flags)

    with monkeypatch.context() as patched:
        patched.setattr(sys.modules[MODULE], "wait_until_free", meanwhile)
        patched.setattr(Backfilling, "run", killed)
        with pytest.raises(Killed):
            again(scratch, changed)
    meanwhile()
    again(scratch, changed)
    assert scratch.rows(changed, "id", "amount") == expected((0, 1, 1, 1, 2), changed=[1], extra=100)[0]


@pytest.mark.campaign
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


@pytest.mark.campaign
def test_a_range_that_is_right_already_is_not_written(scratch):
    orders = shop()["orders"]
    for day in range(3):
        arrive(scratch, day)
    scratch.run(orders)
    table = Path(scratch.lake.table(orders.name).uri)
    version = TableRef.at(table).log.latest_version()
    assert "0 added, 0 removed" in again(scratch, orders).outcome
    assert TableRef.at(table).log.latest_version() == version
    assert scratch.rows(orders, "id", "amount") == expected(range(3))[0]


@pytest.mark.campaign  # the steps of an operation have one executor, and a rewind is killed in the gate
@pytest.mark.parametrize("step", steps(STEPS))
def test_a_day_that_a_delete_removed_is_restored_also_after_a_kill(scratch, monkeypatch, step):
    orders = shop()["orders"]
    for day in range(3):
        arrive(scratch, day)
    scratch.run(orders)
    table = Path(scratch.lake.table(orders.name).uri)
    scratch.engine.new().sql(f"DELETE FROM delta.`{table}` WHERE day = '2026-01-02'")  # noqa: S608 - the test's own

    def killed(point, _stream):
        if point == f"backfill-{step}":
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("tidemill.operations.core.steps.pause_point", killed)
        with pytest.raises(Killed):
            again(scratch, orders)
    with raises("operation-not-finished"):
        again(scratch, orders, end="2026-01-04")
    again(scratch, orders)
    assert scratch.rows(orders, "id", "amount") == expected(range(3))[0]
    arrive(scratch, 3)
    scratch.run(orders)
    assert scratch.rows(orders, "id", "amount") == expected(range(4))[0]


@pytest.mark.campaign
def test_what_cannot_be_computed_for_a_range_is_refused_before_anything_is_written(scratch):
    pipeline = shop()
    orders, totals = pipeline["orders"], pipeline["totals"]
    with raises("stream-never-run"):
        again(scratch, orders)
    for day in range(3):
        arrive(scratch, day)
        run(scratch, pipeline, "orders", "totals")
    with raises("backfill-not-possible"):
        again(scratch, totals)
    with raises("argument-invalid", "2026-01-03 to 2026-01-03"):
        again(scratch, orders, begin="2026-01-03", end="2026-01-03")
    with raises("argument-invalid", "'yesterday'"):
        again(scratch, orders, begin="yesterday")
    second = sorted((scratch.landing / "orders").iterdir())[1]
    second.unlink()
    with raises("sources-incomplete", "1 file of feed orders", second.name):
        again(scratch, orders)
    assert StreamRecords(scratch.lake, orders.name).operation() is None
    again(scratch, orders, begin="2026-01-03", end="2026-01-04")
    assert scratch.rows(orders, "id", "amount") == expected(range(3))[0], "another day does not need the file"


CHANGE = "id STRING, amount BIGINT, day DATE, number BIGINT, dropped BOOLEAN"


def accounts(scd_type, *, extra=0):
    """The newest version, or all versions, of each account; the argument is what the code changes."""
    pipeline = Pipeline("bank")

    @pipeline.stream(
        source=Feed("changes", format=Json(CHANGE), rules={"some": "amount > 0"}),
        sink=DeltaMerge(
            keys=["id"],
            sequence_by="number",
            apply_as_deletes="dropped",
            except_columns=["dropped"],
            scd_type=scd_type,
        ),
        backfill_by="day",
    )
    def accounts(changes):
        return changes.withColumn("amount", F.col("amount") + extra)

    @pipeline.stream(source=accounts.changes(), sink=DeltaAppend())
    def seen(accounts):
        return accounts.where("_change_type != 'update_preimage'").select("id", "amount", "_change_type")

    return pipeline["accounts"], pipeline["seen"]


# id, amount, day, number, dropped: `moved` was on the second day first, `back` was dropped and came back.
ACCOUNTS = [
    [
        ("stays", 1, 1, 1, False),
        ("moved", 2, 2, 2, False),
        ("back", 3, 2, 3, False),
        ("dropped", 4, 2, 4, False),
    ],
    [
        ("second", 5, 2, 5, False),
        ("moved", 6, 3, 6, False),
        ("back", 3, 2, 7, True),
        ("dropped", 4, 2, 8, True),
    ],
    [("back", 7, 2, 9, False), ("stays", 8, 1, 10, False), ("second", 9, 2, 11, False)],
]


def history(scd_type, extra, changed):
    """The rows of `accounts` in plain Python; `changed` are the keys that have the amounts of the changed code."""
    rows = []
    by_key = {}
    for change in sorted((change for batch in ACCOUNTS for change in batch), key=lambda change: change[3]):
        by_key.setdefault(change[0], []).append(change)
    for key, changes in by_key.items():
        for position, (_, amount, _, number, dropped) in enumerate(changes):
            following = changes[position + 1][3] if position + 1 < len(changes) else None
            if not dropped and (scd_type == 2 or following is None):
                span = (number, following) if scd_type == 2 else ()
                rows.append((key, amount + (extra if key in changed else 0), *span))
    return multiset(rows)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("scd_type", "changed"),
    [
        (1, {"back", "second"}),
        (2, {"moved", "back", "second", "dropped"}),
    ],
)
def test_the_keys_of_a_range_of_a_merge_table_are_computed_again(scratch, scd_type, changed):
    accounts_before, seen = accounts(scd_type)
    for batch in ACCOUNTS:
        names = ("id", "amount", "day", "number", "dropped")
        dated = [(*change[:2], f"2026-01-0{change[2]}", *change[3:]) for change in batch]
        scratch.drop_file("changes", [dict(zip(names, change, strict=True)) for change in dated])
        scratch.run(accounts_before)
    run_all = scratch.run_all([seen])
    assert run_all[0].error is None
    read = scratch.rows(seen)
    stream, _ = accounts(scd_type, extra=100)
    planned = again(scratch, stream, publish=False)
    assert "would have" in planned.outcome
    columns = ("id", "amount", "__START_AT", "__END_AT")[: 2 * scd_type]
    assert scratch.rows(stream, *columns) == history(scd_type, 0, set()), "nothing is published"
    done = again(scratch, stream)
    assert scratch.rows(stream, *columns) == history(scd_type, 100, changed)
    assert f"{2 if scd_type == 1 else 7} changed." in done.outcome
    is_exact(scratch, stream)
    scratch.drop_file(
        "changes", [{"id": "new", "amount": 1, "day": "2026-01-03", "number": 20, "dropped": False}]
    )
    (result,) = scratch.run(stream)
    assert result.error is None
    assert scratch.run_all([seen])[0].error is None
    news = scratch.rows(seen) - read
    updated = history(1, 100, changed) - history(1, 0, set()) if scd_type == 1 else None
    if updated is not None:
        assert news == multiset([*((*row, "update_postimage") for row in updated), ("new", 101, "insert")])

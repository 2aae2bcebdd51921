"""Runs that follow their sources until they are asked to end, and runs of a single batch."""

import json
import time
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Thread

import pytest
from deltalake import DeltaTable

from tests.run.state.test_timers import silent_for
from tests.support.checked import failed_checks
from tidemill import DeltaAppend, DeltaMerge, Expect, Feed, Json, Pipeline, QueryOptions, RunWhen
from tidemill import functions as F
from tidemill.operations.edits.accept import accept_version
from tidemill.records.stream_records import StreamRecords
from tidemill.run.execute import follow as following
from tidemill.run.execute.follow import Follow
from tidemill.run.execute.pipeline_run import PipelineRun
from tidemill.testing import multiset

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FOR_A_BATCH = 240  # seconds, on a busy machine
# Triggers without data are reported after a moment, and not after ten seconds.
REPORTED = {"spark.sql.streaming.noDataProgressEventInterval": "500ms"}


@pytest.fixture(autouse=True)
def look_often(monkeypatch):
    monkeypatch.setattr(following, "_LOOK_SECONDS", 0.2)


@contextmanager
def followed(scratch, *streams, **how):
    """Follow streams while the block runs, and add the results to the list that it gets."""
    results = []
    follow = Follow(**how)
    run = PipelineRun(
        streams,
        target=scratch.target,
        engine=scratch.engine,
        run_id=f"follow-{time.time_ns()}",
        follow=follow,
    )
    thread = Thread(target=lambda: results.extend(run.iter_results()))
    thread.start()
    try:
        yield results
    finally:
        follow.ended.set()
        thread.join(FOR_A_BATCH)
    assert not thread.is_alive()


def until(condition):
    deadline = time.monotonic() + FOR_A_BATCH
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def orders_of(shop, **query):
    return shop.stream(
        source=Feed("orders", format=Json("customer STRING, amount BIGINT, at TIMESTAMP")),
        sink=DeltaAppend(),
        name="orders",
        query=QueryOptions(**query),
    )(lambda rows: rows)


def order(customer, amount, minute=0):
    return {"customer": customer, "amount": amount, "at": (NOON + timedelta(minutes=minute)).isoformat()}


def test_what_arrives_flows_through_all_streams(scratch):
    shop = Pipeline("shop")
    orders = orders_of(shop, options=REPORTED)

    @shop.stream(
        source=orders,
        sink=DeltaMerge(keys=["customer"]),
        query=QueryOptions(output_mode="update", options=REPORTED),
    )
    def totals(orders):
        return orders.groupBy("customer").agg(F.sum("amount").alias("amount"))

    @shop.stream(source=orders.with_watermark("at", "0 seconds"), sink=DeltaAppend())
    def windows(orders):
        return orders.groupBy(F.window("at", "10 minutes").alias("w")).count().select("w.start", "count")

    streams = (orders, totals, windows)
    files = [[order("a", 1), order("b", 2)], [order("a", 3, 5), "{broken"], [order("c", 4, 30)]]
    scratch.drop_file("orders", files[0])
    assert [str(result.error) for result in scratch.run_all(streams) if result.error] == []
    with followed(scratch, *streams) as results:
        for number, rows in enumerate(files[1:], 2):
            time.sleep(1)  # some triggers without data come first
            scratch.drop_file("orders", rows)
            expected = sum(isinstance(row, dict) for file in files[:number] for row in file)
            until(lambda expected=expected: scratch.rows(orders).total() == expected)
        until(lambda: ("c", 4) in scratch.rows(totals))
        until(lambda: scratch.rows(windows))
        holders = [StreamRecords(scratch.lake, stream.name).holder() for stream in streams]
        assert all(holders), "the leases are held"
    assert [(result.stream.stream, result.outcome) for result in sorted(results, key=lambda r: r.stream)] == [
        ("orders", "updated"),
        ("totals", "updated"),
        ("windows", "updated"),
    ]
    given = [row for file in files for row in file if isinstance(row, dict)]
    amounts = Counter()
    for row in given:
        amounts[row["customer"]] += row["amount"]
    assert scratch.rows(orders, "customer", "amount") == multiset((r["customer"], r["amount"]) for r in given)
    assert scratch.rows(totals) == multiset(amounts.items())
    assert scratch.rows(windows) == multiset([(NOON, 3)])
    assert scratch.quarantined(orders, "raw") == multiset([("{broken",)])
    for stream in streams:
        records = StreamRecords(scratch.lake, stream.name)
        lines = sorted(records.ledger.lines(), key=lambda line: line.batch_id)
        assert [line.batch_id for line in lines] == list(range(records.snapshot().last_commit + 1))
        assert not any(line.reconstructed for line in lines), "each batch was recorded when it ended"
        assert all("addBatch" in line.milliseconds for line in lines), "and not when it had not begun"
        assert records.holder() is None
    assert sum(line.rows_read for line in StreamRecords(scratch.lake, orders.name).ledger.lines()) == 5


@pytest.mark.campaign
def test_streams_with_one_table_and_rows_that_rules_refuse(scratch):
    """In an empty lake: each stream starts when the tables that it needs have a batch."""
    shop = Pipeline("shop")
    orders = orders_of(shop, options=REPORTED)
    small = [Expect("small", "amount < 100", on_violation="quarantine")]

    @shop.stream(
        source=Feed("returns", format=Json("customer STRING, amount BIGINT, at TIMESTAMP")),
        sink=DeltaAppend(into=orders),
        expect=small,
        query=QueryOptions(options=REPORTED),
    )
    def returns(events):
        return events

    @shop.stream(source=orders, sink=DeltaAppend(), expect=small, query=QueryOptions(options=REPORTED))
    def copied(orders):
        return orders.select("customer", "amount")

    streams = (orders, returns, copied)
    given = [("orders", "first", 1)]
    (scratch.landing / "returns").mkdir(parents=True)
    scratch.drop_file("orders", [order("first", 1)])
    with followed(scratch, *streams) as results:
        until(lambda: scratch.rows(copied) == multiset([("first", 1)]))  # before anything is appended
        for number in range(3):
            for feed in ("orders", "returns"):
                rows = [order(f"{feed}-{number}", number), order(f"{feed}-{number}", 100 + number)]
                given += [(feed, row["customer"], row["amount"]) for row in rows]
                scratch.drop_file(feed, rows)
            arrived = multiset((c, n) for feed, c, n in given if feed == "orders" or n < 100)
            until(lambda arrived=arrived: scratch.rows(orders, "customer", "amount") == arrived)
            passed = multiset((c, n) for _, c, n in given if n < 100)
            until(lambda passed=passed: scratch.rows(copied) == passed)
    assert {(result.outcome, result.error) for result in results} == {("updated", None)}
    assert scratch.rows(orders, "customer", "amount") == arrived
    assert scratch.rows(copied) == passed
    for stream, feed in ((returns, "returns"), (copied, "orders")):
        refused = Counter(
            {json.loads(raw)["amount"]: n for (raw,), n in scratch.quarantined(stream, "raw").items()}
        )
        assert refused == Counter(n for one, _, n in given if one == feed and n >= 100)
        assert all("violations of amount" in summary for summary in failed_checks(scratch, stream))


def test_nothing_arrives(scratch):
    orders = orders_of(Pipeline("shop"))
    scratch.run(orders, [[order("a", 1)]])
    with followed(scratch, orders) as results:
        time.sleep(1)
    assert [(result.outcome, result.reason) for result in results] == [("idle", "nothing new")]
    assert scratch.rows(orders, "customer") == multiset(["a"])


@pytest.mark.campaign
def test_a_static_table_is_read_again_when_it_has_another_version(scratch):
    shop = Pipeline("shop")
    orders = orders_of(shop)
    names = shop.stream(
        source=Feed("names", format=Json("id STRING, name STRING, seq BIGINT")),
        sink=DeltaMerge(keys=["id"], sequence_by="seq"),
        name="names",
    )(lambda rows: rows)

    @shop.stream(source={"orders": orders, "names": names.static()}, sink=DeltaAppend())
    def named(orders, names):
        return orders.join(names, F.col("customer") == F.col("id"), "left").select("amount", "name")

    scratch.run(names, [[{"id": "a", "name": "before", "seq": 1}]])
    scratch.run(orders, [[order("a", 1)]])
    with followed(scratch, named) as results:
        until(lambda: scratch.rows(named).total() == 1)
        scratch.run(names, [[{"id": "a", "name": "after", "seq": 2}]])
        version = scratch.lake.table(names.name).log.latest_version()
        records = StreamRecords(scratch.lake, named.name)
        until(lambda: records.pins() is not None and version in records.pins().versions.values())
        scratch.run(orders, [[order("a", 2)]])
        until(lambda: scratch.rows(named).total() == 2)
    assert [result.outcome for result in results] == ["updated"]
    assert scratch.rows(named) == multiset([(1, "before"), (2, "after")])


def test_a_commit_that_removes_rows_of_an_upstream_is_not_passed_unseen(scratch):
    shop = Pipeline("shop")
    orders = orders_of(shop)
    copied = shop.stream(source=orders, sink=DeltaAppend(), name="copied")(lambda orders: orders)
    scratch.run(orders, [[order("a", 1), order("b", 2)]])
    with followed(scratch, copied) as results:
        until(lambda: scratch.rows(copied).total() == 2)
        DeltaTable(scratch.lake.table(orders.name).uri).delete("customer = 'a'")
        scratch.drop_file("orders", [order("c", 3)])
        scratch.run(orders)
        until(lambda: results)
    assert scratch.rows(copied, "customer") == multiset(["a", "b"]), "nothing behind the commit was read"
    assert [(result.outcome, result.error.code) for result in results] == [
        ("failed", "upstream-rows-changed")
    ]


def test_a_commit_that_the_user_has_accepted_is_passed(scratch):
    shop = Pipeline("shop")
    orders = orders_of(shop)
    copied = shop.stream(source=orders, sink=DeltaAppend(), name="copied")(lambda orders: orders)
    scratch.run(orders, [[order("a", 1), order("b", 2)]])
    scratch.run(copied)
    DeltaTable(scratch.lake.table(orders.name).uri).delete("customer = 'a'")
    version = scratch.lake.table(orders.name).log.latest_version()
    accept_version(copied, scratch.target, orders.name, version)
    with followed(scratch, copied) as results:
        scratch.drop_file("orders", [order("c", 3)])
        scratch.run(orders)
        until(lambda: scratch.rows(copied).total() == 3)
    assert [(result.outcome, result.error) for result in results] == [("updated", None)]
    assert scratch.rows(copied, "customer") == multiset(["a", "b", "c"])


def test_timers_fire_while_nothing_arrives(scratch):
    shop = Pipeline("shop", run_when=RunWhen(timers_every="1 second"))
    orders = orders_of(shop)

    @shop.stream(source=orders, sink=DeltaAppend(), query=QueryOptions(shuffle_partitions=1))
    def silent(orders):
        return silent_for(orders, lambda _customer: 5_000)

    scratch.run(orders, [[order("a", 1)]])
    with followed(scratch, silent):
        until(lambda: scratch.rows(silent))
    assert scratch.rows(silent) == multiset([("a",)])


def test_once_reads_everything_in_one_batch(scratch):
    shop = Pipeline("shop")
    feed = Feed("orders", format=Json("customer STRING, amount BIGINT"), max_files_per_batch=1)
    orders = shop.stream(source=feed, sink=DeltaAppend(), name="orders")(lambda rows: rows)
    for number in range(3):
        scratch.drop_file("orders", [{"customer": "a", "amount": number}])
    run = PipelineRun([orders], target=scratch.target, engine=scratch.engine, run_id="once", once=True)
    [result] = run.iter_results()
    assert [batch.rows_read for batch in result.batches] == [3]
    assert scratch.rows(orders, "amount") == multiset((number,) for number in range(3))

"""Rewinds: tables and offsets go back together, and changed code continues exactly."""

import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from tests.run.fault_oracle import START, WINDOW, minute, orders_of, payments_of
from tests.run.fault_streams import DELAY, ORDER, PAYMENT
from tests.support.raising import raises
from tidemill import DeltaAppend, DeltaMerge, Feed, Json, Pipeline, QueryOptions
from tidemill.checks.evaluation import evaluate
from tidemill.errors import UpstreamChangeError
from tidemill.operations.core.steps import session
from tidemill.operations.generations.rewind import STEPS, rewind
from tidemill.operations.replay.rebuild import rebuild
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.table_ref import TableRef
from tidemill.testing import multiset

# Each arrival moves the watermark over what the arrivals before have opened.
ARRIVALS = [range(first, first + 10) for first in (0, 40, 80, 120, 160)]
KEPT = 2  # arrivals that stay
CHANGED = 1000


def shop(*, extra=0) -> Pipeline:
    """Append, merge, window, join and session streams; `extra` is what changed code adds to a number."""
    pipeline = Pipeline("shop")

    @pipeline.stream(
        source=Feed("orders", format=Json(ORDER), rules={"known": "order_id NOT LIKE 'bad%'"}),
        sink=[DeltaAppend(name="archive"), DeltaAppend()],
    )
    def orders(events):
        return events.withColumn("amount", F.col("amount") + extra)

    @pipeline.stream(source=Feed("payments", format=Json(PAYMENT)), sink=DeltaAppend())
    def payments(events):
        return events

    @pipeline.stream(source=orders.with_watermark("at", DELAY), sink=DeltaAppend())
    def windows(orders):
        counts = orders.groupBy(F.window("at", "5 minutes").alias("w")).agg(F.count("*").alias("n"))
        return counts.select("w.start", (F.col("n") + extra).alias("n"))

    @pipeline.stream(source=orders.with_watermark("at", DELAY), sink=DeltaAppend())
    def visits(orders):
        sessions = orders.groupBy("customer", F.session_window("at", "5 minutes").alias("w"))
        counts = sessions.agg(F.count("*").alias("n"))
        return counts.select("customer", "w.start", (F.col("n") + extra).alias("n"))

    @pipeline.stream(
        source={
            "orders": orders.with_watermark("at", DELAY),
            "payments": payments.with_watermark("paid_at", DELAY),
        },
        sink=DeltaAppend(),
    )
    def paid(orders, payments):
        within = F.expr("o.order_id = p.order_id AND paid_at >= at AND paid_at <= at + INTERVAL 5 MINUTES")
        joined = orders.alias("o").join(payments.alias("p"), within)
        return joined.select("o.order_id", F.lit(extra).alias("code"))

    @pipeline.stream(
        source=orders, sink=DeltaMerge(keys=["customer"]), query=QueryOptions(output_mode="update")
    )
    def totals(orders):
        return orders.groupBy("customer").agg((F.count("*") + extra).alias("n"))

    return pipeline


def arrive(scratch, pipeline, arrival):
    minutes = ARRIVALS[arrival]
    bad = {"order_id": f"bad{arrival}", "customer": "c", "amount": 0, "at": START.isoformat()}
    scratch.arrive(pipeline["orders"], "events", [*orders_of(minutes), bad])
    scratch.arrive(pipeline["payments"], "events", payments_of(minutes))


def run(scratch, pipeline):
    for result in scratch.run_all(list(pipeline)):
        assert result.error is None, result.error


def tables(scratch, pipeline):
    return {stream.name.stream: scratch.rows(stream) for stream in pipeline}


def newest(scratch, stream):
    return StreamRecords(scratch.lake, stream.name).snapshot().last_commit


def back(scratch, stream, **to):
    return rewind(stream, scratch.target, scratch.engine, **to)


def after(rows, kept, change):
    """The rows that were kept, and the others as changed code makes them."""
    return kept + Counter({change(row): count for row, count in (rows - kept).items()})


@pytest.fixture
def run_five_times(scratch):
    """The shop after five runs, its tables and newest batches after each."""
    pipeline = shop()
    history = []
    for arrival in range(len(ARRIVALS)):
        arrive(scratch, pipeline, arrival)
        run(scratch, pipeline)
        history.append((tables(scratch, pipeline), {s.name.stream: newest(scratch, s) for s in pipeline}))
    return history


@pytest.mark.campaign
def test_all_kinds_of_streams_go_back_and_continue_with_changed_code(scratch, run_five_times):
    (kept, batches), (everything, _) = run_five_times[KEPT - 1], run_five_times[-1]
    changed = shop(extra=CHANGED)
    for stream in changed:
        back(scratch, stream, to_batch=batches[stream.name.stream])
    assert tables(scratch, changed) == kept
    assert scratch.quarantined(changed["orders"], "batch_id") == multiset([(0,), (1,)])
    run(scratch, changed)
    rows = tables(scratch, changed)

    all_orders = [order for minutes in ARRIVALS for order in orders_of(minutes)]
    assert scratch.rows(changed["orders"], "order_id", "amount") == multiset(
        (order["order_id"], order["amount"] + (CHANGED if place >= KEPT * 10 else 0))
        for place, order in enumerate(all_orders)
    )
    archive = scratch.table_rows(scratch.lake.table(changed["orders"].name, "archive"), "order_id", "amount")
    assert archive == scratch.rows(changed["orders"], "order_id", "amount")
    assert scratch.quarantined(changed["orders"], "raw") == scratch.quarantined(shop()["orders"], "raw")
    assert sum(scratch.quarantined(changed["orders"]).values()) == len(ARRIVALS)

    watermark = minute(169 - 10)
    starts = Counter(START + (minute(m) - START) // WINDOW * WINDOW for minutes in ARRIVALS for m in minutes)
    closed = multiset((start, n) for start, n in starts.items() if start + WINDOW <= watermark)
    assert everything["windows"] == closed
    assert rows["windows"] == after(closed, kept["windows"], lambda row: (row[0], row[1] + CHANGED))
    visits = multiset((f"c{m % 2}", minute(m), 5) for minutes in ARRIVALS[:-1] for m in minutes[:2])
    assert everything["visits"] == visits
    assert rows["visits"] == after(visits, kept["visits"], lambda row: (*row[:2], row[2] + CHANGED))
    paid = multiset((p["order_id"], 0) for minutes in ARRIVALS for p in payments_of(minutes))
    assert everything["paid"] == paid
    assert rows["paid"] == after(paid, kept["paid"], lambda row: (row[0], CHANGED))
    assert rows["totals"] == multiset([("c0", 25 + CHANGED), ("c1", 25 + CHANGED)])

    for stream in changed:
        for result in evaluate(stream, scratch.target, datetime.now(UTC)):
            assert result.severity != "error" or result.passed, result
        manifest = StreamRecords(scratch.lake, stream.name).manifest()
        assert [generation.number for generation in manifest.generations] == [1, 2]
        assert scratch.checkpoint(stream.name, 1).exists(), "the way back stays"


@pytest.mark.campaign
def test_a_reader_that_read_what_is_taken_back_names_its_own_rewind(scratch):
    pipeline = shop()
    orders, windows = pipeline["orders"], pipeline["windows"]
    for arrival in range(2):
        arrive(scratch, pipeline, arrival)
        scratch.run(orders)
        scratch.run(windows)
        if arrival == 0:
            first = newest(scratch, windows)
    everything = scratch.rows(windows)
    back(scratch, orders, to_batch=0)
    (refused,) = scratch.run_all([windows])
    assert (refused.error.code, type(refused.error)) == ("upstream-rewound", UpstreamChangeError)
    assert refused.error.fix == f"tidemill rewind shop/windows --to-batch {first}"
    back(scratch, windows, to_batch=first)
    kept = scratch.rows(windows)
    changed = shop(extra=CHANGED)
    scratch.run(changed["orders"])
    scratch.run(changed["windows"])
    assert scratch.rows(windows) == after(everything, kept, lambda row: (row[0], row[1] + CHANGED))
    assert sum(kept.values()) < sum(everything.values())


class Killed(BaseException):
    """What stands for a kill: nothing catches it."""


def steps(names):
    """The steps at which a command is killed; `make test` has the one in which tables change, `make test-full` all."""
    return [
        step if step == "tables" else pytest.param(step, marks=pytest.mark.campaign)
        for step in ("begin", *names)
    ]


@pytest.mark.parametrize("step", steps(STEPS))
def test_a_rewind_that_is_killed_after_any_step_is_finished_by_the_same_command(scratch, monkeypatch, step):
    pipeline = shop()
    orders = pipeline["orders"]
    for arrival in range(2):
        arrive(scratch, pipeline, arrival)
        scratch.run(orders)
    everything = scratch.rows(orders)

    def killed(point, _stream):
        if point == f"rewind-{step}":
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("tidemill.operations.core.steps.pause_point", killed)
        with pytest.raises(Killed):
            back(scratch, orders, to_batch=0)
    (refused,) = scratch.run_all([orders])
    assert refused.error.fix == "finish it: tidemill rewind shop/orders --to-batch 0"
    with raises("operation-not-finished"):
        back(scratch, orders, to_batch=1)
    back(scratch, orders, to_batch=0)
    assert scratch.rows(orders, "order_id") == multiset(
        (order["order_id"],) for order in orders_of(ARRIVALS[0])
    )
    assert scratch.quarantined(orders, "batch_id") == multiset([(0,)])
    scratch.run(orders)
    assert scratch.rows(orders) == everything
    assert scratch.quarantined(orders, "batch_id") == multiset([(0,), (1,)])


@pytest.mark.campaign
def test_a_reader_that_was_behind_reads_what_stays_and_passes_the_rest(scratch):
    pipeline = shop()
    orders, windows = pipeline["orders"], pipeline["windows"]
    for arrival in range(4):
        arrive(scratch, pipeline, arrival)
        scratch.run(orders)
        if arrival == 0:
            scratch.run(windows)
    back(scratch, orders, to_batch=2)
    again = shop(extra=CHANGED)
    scratch.run(again["orders"])
    scratch.run(pipeline["windows"])
    starts = Counter(
        START + (minute(m) - START) // WINDOW * WINDOW for minutes in ARRIVALS[:4] for m in minutes
    )
    expected = multiset((start, n) for start, n in starts.items() if start + WINDOW <= minute(129 - 10))
    assert scratch.rows(windows) == expected
    (exactly_once,) = [
        result
        for result in evaluate(windows, scratch.target, datetime.now(UTC))
        if result.name == "exactly_once"
    ]
    assert exactly_once.passed, exactly_once


def test_a_plan_changes_nothing(scratch):
    pipeline = shop()
    for arrival in range(2):
        arrive(scratch, pipeline, arrival)
        scratch.run(pipeline["orders"])
    before = {path: path.read_bytes() for path in Path(scratch.lake.uri).rglob("*") if path.is_file()}
    plan = rewind(
        pipeline["orders"], scratch.target, scratch.engine, to_batch=0, readers=list(pipeline), dry_run=True
    )
    assert "from batch 1 to batch 0" in plan.what
    assert any("shop/windows reads the table" in effect for effect in plan.effects)
    assert {path: path.read_bytes() for path in Path(scratch.lake.uri).rglob("*") if path.is_file()} == before


@pytest.mark.campaign
def test_what_is_gone_is_refused_with_the_reason(scratch):
    pipeline = shop()
    orders, windows = pipeline["orders"], pipeline["windows"]
    for arrival in range(3):
        arrive(scratch, pipeline, arrival)
        scratch.run(orders)
        scratch.run(windows)
    with raises("batch-not-known", "batch 7", "batches 0 to 2"):
        back(scratch, orders, to_batch=7)
    with raises("nothing-to-change", "batch 2"):
        back(scratch, orders, to_batch=2)
    for path in scratch.checkpoint(windows.name).glob("state/0/*/[12].*"):
        path.unlink()
    with raises("rewind-not-possible", "batch 1"):
        back(scratch, windows, to_batch=1)
    table = Path(scratch.lake.table(orders.name).uri)
    version = TableRef.at(table).log.commits_of_batches(
        StreamRecords(scratch.lake, orders.name).snapshot().query_id, 0
    )[0]
    scratch.engine.new().sql(f"DELETE FROM delta.`{table}` WHERE order_id = 'o1'")  # noqa: S608 - a path of the test's own
    for add in (
        action["add"] for action in TableRef.at(table).log.actions(version.version) if "add" in action
    ):
        (table / add["path"]).unlink()
    with raises("rewind-not-possible", "VACUUM"):
        back(scratch, orders, to_batch=0)


@pytest.mark.campaign
def test_an_older_checkpoint_beside_a_restored_table_is_refused_and_skips_nothing(scratch):
    orders = shop()["orders"]
    arrive(scratch, shop(), 0)
    scratch.run(orders)
    checkpoint, table = scratch.checkpoint(orders.name), Path(scratch.lake.table(orders.name).uri)
    shutil.copytree(checkpoint, checkpoint.with_name("copy"))
    version = TableRef.at(table).log.latest_version()
    arrive(scratch, shop(), 1)
    scratch.run(orders)
    # A RESTORE keeps the transactions of the batches that it takes back: Delta would skip them when they are repeated.
    with session(scratch.engine, None) as spark:
        spark.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF {version}")
    shutil.rmtree(checkpoint)
    checkpoint.with_name("copy").rename(checkpoint)
    (refused,) = scratch.run_all([orders])
    assert "the table would skip every batch up to 1 as already written" in str(refused.error)
    rebuild(orders, scratch.target, scratch.engine)
    minutes = [*ARRIVALS[0], *ARRIVALS[1]]
    assert scratch.rows(orders, "order_id") == multiset((order["order_id"],) for order in orders_of(minutes))

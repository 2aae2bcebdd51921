"""Rebuilds: new tables from the sources, in one commit each, while the old ones serve."""

import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.operations.test_rewind import ARRIVALS, CHANGED, Killed, arrive, run, shop
from tests.run.fault_oracle import START, WINDOW, minute, orders_of, payments_of
from tests.support.raising import raises
from tidemill import DeltaAppend, DeltaMerge, Feed, Json, Pipeline
from tidemill.checks.evaluation import evaluate
from tidemill.errors import UpstreamChangeError
from tidemill.operations.core.steps import COMPUTE
from tidemill.operations.edits.code_changes import code_changes
from tidemill.operations.edits.new_sink import accept_new_sink
from tidemill.operations.replay.rebuild import STEPS, rebuild
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.table_ref import TableRef
from tidemill.testing import multiset


def again(scratch, stream, **flags):
    return rebuild(stream, scratch.target, scratch.engine, **flags)


def expected(streams, arrivals, *, extra):
    """The tables of all arrivals, as one version of the code makes them."""
    every = every_table(arrivals, extra=extra)
    return {name: every[name] for name in names_of(streams) if name in every}


def names_of(streams):
    return [stream.name.stream for stream in streams]


def every_table(arrivals, *, extra):
    minutes = [m for arrival in arrivals for m in ARRIVALS[arrival]]
    watermark = minute(max(minutes) - 10)
    starts = Counter(START + (minute(m) - START) // WINDOW * WINDOW for m in minutes)
    return {
        "orders": multiset((order["order_id"], order["amount"] + extra) for order in orders_of(minutes)),
        "windows": multiset((start, n + extra) for start, n in starts.items() if start + WINDOW <= watermark),
        "paid": multiset(
            (payment["order_id"], extra) for a in arrivals for payment in payments_of(ARRIVALS[a])
        ),
        "totals": multiset((f"c{c}", len(minutes) // 2 + extra) for c in (0, 1)),
    }


def tables(scratch, streams):
    columns, known = {"orders": ("order_id", "amount")}, every_table([0], extra=0)
    return {
        stream.name.stream: scratch.rows(stream, *columns.get(stream.name.stream, ()))
        for stream in streams
        if stream.name.stream in known
    }


@pytest.mark.parametrize(
    "names",
    [
        ("orders", "windows"),
        pytest.param([stream.name.stream for stream in shop()], marks=pytest.mark.campaign),
    ],
    ids=["some", "all"],
)
def test_streams_are_rebuilt_with_changed_code_while_events_arrive(scratch, names):
    pipeline, changed = ([made[name] for name in names] for made in (shop(), shop(extra=CHANGED)))
    orders = shop()["orders"]
    for arrival in range(2):
        arrive(scratch, shop(), arrival)
        run(scratch, pipeline)
    assert tables(scratch, pipeline) == expected(pipeline, range(2), extra=0)
    arrive(scratch, shop(), 2)
    for stream in changed:
        again(scratch, stream)
    assert tables(scratch, changed) == expected(pipeline, range(3), extra=CHANGED)
    assert sum(scratch.quarantined(orders).values()) == 3
    arrive(scratch, shop(), 3)
    run(scratch, changed)
    assert tables(scratch, changed) == expected(pipeline, range(4), extra=CHANGED)
    for stream in changed:
        for result in evaluate(stream, scratch.target, datetime.now(UTC)):
            assert result.severity != "error" or result.passed, result
        records = StreamRecords(scratch.lake, stream.name)
        assert [generation.number for generation in records.manifest().generations] == [1, 2]
        assert scratch.checkpoint(stream.name, 1).exists(), "the old generation stays until it is pruned"
        assert not records.lake.store.walk(records.lake.staging(stream.name))


@pytest.mark.campaign
def test_readers_see_the_old_rows_or_the_new_ones_and_refuse_the_commit(scratch):
    pipeline, changed = shop(), shop(extra=CHANGED)
    orders, windows = pipeline["orders"], pipeline["windows"]
    arrive(scratch, pipeline, 0)
    scratch.run(orders)
    scratch.run(windows)
    table = Path(scratch.lake.table(orders.name).uri)
    before = TableRef.at(table).log.latest_version()
    again(scratch, changed["orders"], keep_old=True)
    commits = list(TableRef.at(table).log.commits(before + 1))
    assert [commit.adds_rows and commit.removes_rows for commit in commits] == [True], "one commit"
    old = scratch.table_rows(scratch.lake.table(orders.name, "generation_1"), "order_id", "amount")
    assert old == every_table([0], extra=0)["orders"]
    arrive(scratch, pipeline, 1)
    scratch.run(changed["orders"])
    (refused,) = scratch.run_all([windows])
    assert isinstance(refused.error, UpstreamChangeError)
    assert "tidemill rebuild shop/windows" in refused.error.fix
    again(scratch, windows)
    assert scratch.rows(windows) == every_table(range(2), extra=0)["windows"]


@pytest.mark.campaign
@pytest.mark.parametrize("step", ["begin", *STEPS])
def test_a_rebuild_that_is_killed_after_any_step_is_finished_by_the_same_command(scratch, monkeypatch, step):
    orders, changed = shop()["orders"], shop(extra=CHANGED)["orders"]
    arrive(scratch, shop(), 0)
    scratch.run(orders)

    def killed(point, _stream):
        if point == f"rebuild-{step}":
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("tidemill.operations.core.steps.pause_point", killed)
        with pytest.raises(Killed):
            again(scratch, changed)
    (refused,) = scratch.run_all([orders])
    assert refused.error.fix == "finish it: tidemill rebuild shop/orders"
    arrive(scratch, shop(), 1)
    again(scratch, changed)
    scratch.run(changed)
    assert scratch.rows(changed, "order_id", "amount") == every_table(range(2), extra=CHANGED)["orders"]
    assert sum(scratch.quarantined(changed).values()) == 2
    manifest = StreamRecords(scratch.lake, orders.name).manifest()
    assert [generation.number for generation in manifest.generations] == [1, 2]


def test_a_rebuild_that_is_killed_while_it_computes_continues(scratch, monkeypatch):
    orders, changed = shop()["orders"], shop(extra=CHANGED)["orders"]
    arrive(scratch, shop(), 0)
    scratch.run(orders)

    def killed(point, _stream):
        if point == "after-sink":
            raise RuntimeError("killed here")  # Spark waits forever for a function that ends in another way

    with monkeypatch.context() as patched:
        patched.setattr("tidemill.run.batch.writer.pause_point", killed)
        with pytest.raises(Exception, match="killed here"):
            again(scratch, changed)
    arrive(scratch, shop(), 1)
    scratch.run(orders)
    assert scratch.rows(orders, "order_id", "amount") == every_table(range(2), extra=0)["orders"], (
        "it still runs"
    )
    again(scratch, changed)
    assert scratch.rows(changed, "order_id", "amount") == every_table(range(2), extra=CHANGED)["orders"]
    assert COMPUTE in StreamRecords(scratch.lake, orders.name).operations()[-1].done


@pytest.mark.campaign
def test_what_the_sources_no_longer_have_is_named_before_anything_is_written(scratch):
    orders = shop()["orders"]
    for arrival in range(2):
        arrive(scratch, shop(), arrival)
        scratch.run(orders)
    first = min((scratch.landing / "orders").iterdir())
    first.unlink()
    with raises("sources-incomplete", "1 file of feed orders", first.name):
        again(scratch, orders)
    assert StreamRecords(scratch.lake, orders.name).operation() is None
    again(scratch, orders, allow_missing=True)
    assert scratch.rows(orders, "order_id", "amount") == every_table([1], extra=0)["orders"]


def test_a_sink_and_a_layout_that_are_declared_later_are_named_and_come_with_a_rebuild(scratch):
    def declared(*sinks):
        source = Feed("orders", format=Json("order_id STRING, amount BIGINT"))
        return Pipeline("shop").stream(source=source, sink=sinks, name="orders")(lambda events: events)

    scratch.run(declared(DeltaAppend()), [[{"order_id": "o1", "amount": 1}]])
    scratch.drop_file("orders", [{"order_id": "o2", "amount": 2}])
    later = declared(DeltaAppend(partition_by=["amount"]), DeltaAppend(name="archive"))
    with raises("sink-new", "--new-sink archive", "tidemill rebuild shop/orders"):
        scratch.run(later)
    for code in ("sink-new", "partitions-changed"):
        [planned] = code_changes([later], scratch.target, scratch.engine)
        assert (planned.kind, planned.error.code) == ("refused", code)
        if code == "sink-new":
            accept_new_sink(later, scratch.target, "archive")
    again(scratch, later)
    assert scratch.lake.table(later.name).open().metadata().partition_columns == ["amount"]
    for table in ("main", "archive"):
        rows = scratch.table_rows(scratch.lake.table(later.name, table), "order_id", "amount")
        assert rows == multiset([("o1", 1), ("o2", 2)])


@pytest.mark.campaign
def test_a_lost_checkpoint_and_another_kind_of_sink_are_rebuilt(scratch):
    def declared(sink):
        pipeline = Pipeline("shop")
        source = Feed("orders", format=Json("order_id STRING, amount BIGINT, at TIMESTAMP"))
        return pipeline.stream(source=source, sink=sink, name="orders")(lambda events: events)

    appended, merged = declared(DeltaAppend()), declared(DeltaMerge(keys=["order_id"], sequence_by="at"))
    scratch.drop_file("orders", orders_of(ARRIVALS[0]))
    scratch.run(appended)
    shutil.rmtree(scratch.checkpoint(appended.name))
    (refused,) = scratch.run_all([appended])
    assert "tidemill rebuild shop/orders" in refused.error.fix
    with raises("sources-incomplete"):
        again(scratch, appended)
    again(scratch, appended, allow_missing=True)
    assert scratch.rows(appended, "order_id", "amount") == every_table([0], extra=0)["orders"]
    again(scratch, merged)
    scratch.drop_file("orders", orders_of(ARRIVALS[1]))
    scratch.run(merged)
    assert scratch.rows(merged, "order_id", "amount") == every_table(range(2), extra=0)["orders"]
    configuration = scratch.lake.table(merged.name).open().metadata().configuration
    assert configuration["delta.enableChangeDataFeed"] == "true"

"""Replays of a quarantine: every record is exactly once in exactly one of the tables, whatever is killed."""

import json
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.run.quarantine.record_streams import shop
from tests.support.killed import killed_when
from tests.support.leases import held
from tests.support.raising import raises
from tidemill.checks.evaluation import evaluate
from tidemill.errors import LeaseHeldError
from tidemill.operations.core import steps
from tidemill.operations.generations.rewind import rewind
from tidemill.operations.quarantine.quarantine_replay import REPLAY, replay_quarantine
from tidemill.operations.quarantine.replay_plan import Verdict
from tidemill.records.manifest import first_manifest
from tidemill.records.stream_records import StreamRecords
from tidemill.run.spark.engine import QueryServer
from tidemill.storage.lake import Lake
from tidemill.testing import Scratch, multiset

POINTS = ("staged", "begin", "table-archive", "table", "quarantine", "staging")


def amounts(*values):
    return [{"order_id": f"o{value}", "amount": value} for value in values]


# Amounts that one version of the rules refuses and another one accepts, lines that are no JSON, and a record twice.
ARRIVALS = [[*amounts(5, -1, -7), "{", '{"order_id": "x", "amount": 3} {}'], [*amounts(6, -2, -2), "{"]]
RECORDS = [
    record if isinstance(record, str) else json.dumps(record) for arrival in ARRIVALS for record in arrival
]


def amount_of(record):
    try:
        return json.loads(record)["amount"]
    except ValueError:
        return None


def expected(least):
    """The orders in the tables and the records in quarantine, from the input alone."""
    passed = [record for record in RECORDS if (amount_of(record) or -99) >= least]
    refused = list(RECORDS)
    for record in passed:
        refused.remove(record)
    orders = multiset((json.loads(record)["order_id"],) for record in passed)
    return orders, orders, multiset((record,) for record in refused)


def contents(scratch):
    orders = shop(0)["orders"]
    archive = scratch.table_rows(scratch.lake.table(orders.name, "archive"), "order_id")
    return scratch.rows(orders, "order_id"), archive, scratch.quarantined(orders, "raw")


def exactly_once(scratch, stream):
    [result] = evaluate(stream, scratch.target, datetime.now(UTC), names=["exactly_once"])
    return result


@pytest.fixture(scope="module")
def filled(engine, tmp_path_factory):
    """A lake whose stream has refused records in two batches, and has a reader that is up to date."""
    folder = tmp_path_factory.mktemp("filled")
    scratch = Scratch(lake=Lake.at(folder / "lake"), landing=folder / "landing", engine=engine)
    for arrival in ARRIVALS:
        scratch.run(shop(0)["orders"], [arrival])
    scratch.run(shop(0)["copied"])
    assert contents(scratch) == expected(0)
    return folder


def test_a_replay_moves_what_passes_and_keeps_the_rest(refused):
    made = shop(-5)
    orders = made["orders"]
    plan = replay_quarantine(orders, refused.target, refused.engine, known=list(made), dry_run=True)
    assert contents(refused) == expected(0)
    done = replay_quarantine(orders, refused.target, refused.engine, known=list(made))
    assert plan.verdict == done.verdict
    assert (done.verdict.records, done.verdict.passed) == (7, 3)
    assert dict(done.verdict.by_rule) == {"unparsable": 3, "amount_large": 1}
    assert contents(refused) == expected(-5)
    # A row has the batch that refused its record.
    batches = refused.table_rows(refused.lake.table(orders.name), "order_id", "_batch")
    numbers = {order: dict(batch)["batch_id"] for order, batch in batches}
    assert numbers == {"o5": 0, "o6": 1, "o-1": 0, "o-2": 1}
    assert exactly_once(refused, orders).summary == "2 batches: offsets, ledger and tables agree."
    refused.run(made["copied"])
    assert refused.rows(made["copied"]) == expected(-5)[0]
    assert not replay_quarantine(orders, refused.target, refused.engine).changes
    refused.run(orders, [amounts(7, -8)])
    assert sum(refused.rows(orders).values()) == 6
    assert exactly_once(refused, orders).passed


def test_what_is_refused_for_another_reason_says_so(refused):
    orders = shop(0, noted=True)["orders"]
    done = replay_quarantine(orders, refused.target, refused.engine)
    assert (done.verdict.passed, done.verdict.changed) == (0, 4)
    assert set(refused.quarantined(orders, "violated")) == {(("unparsable",),), (("amount_large", "noted"),)}
    assert contents(refused) == expected(0)
    assert exactly_once(refused, orders).passed


class Killed(BaseException):
    """A kill, as far as files can show it."""


@pytest.mark.campaign
@pytest.mark.parametrize("point", POINTS)
def test_a_replay_that_ended_at_any_step_is_finished_as_it_was_decided(refused, monkeypatch, point):
    def pause(name, stream):
        if name == f"replay-{point}":
            raise Killed(f"{stream} at {name}")

    orders = shop(-5)["orders"]
    with monkeypatch.context() as patch:
        patch.setattr(steps, "pause_point", pause)
        patch.setattr(sys.modules[replay_quarantine.__module__], "pause_point", pause)
        with pytest.raises(Killed):
            replay_quarantine(orders, refused.target, refused.engine)
    if point == "staged":  # nothing was decided, so the rules of the next command do
        replay_quarantine(shop(-99)["orders"], refused.target, refused.engine)
        assert contents(refused) == expected(-98)
    else:
        refused.drop_file("orders", amounts(8))
        [busy] = refused.run_all([orders])
        assert f"tidemill quarantine replay {orders.name}" in str(busy.error)
        # Rules that have changed again do not matter any more.
        replay_quarantine(shop(-99)["orders"], refused.target, refused.engine)
        assert contents(refused) == expected(-5)
    assert not refused.lake.store.walk(refused.lake.staging(orders.name))
    assert exactly_once(refused, orders).passed


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=[] if point == "table" else pytest.mark.campaign) for point in POINTS]
)
def test_a_replay_that_was_killed(refused, tmp_path, point):
    command = ["tests.run.quarantine.record_streams", refused.lake.uri, str(refused.landing), "-5"]
    killed_when(command, tmp_path, point=f"shop/orders:replay-{point}")
    replay_quarantine(shop(-5)["orders"], refused.target, refused.engine)
    assert contents(refused) == expected(-5)


@pytest.mark.campaign
def test_records_of_a_batch_that_must_be_repeated_are_not_judged(refused):
    orders = shop(-5)["orders"]
    for name in ("1", ".1.crc"):
        (refused.checkpoint(orders.name) / "commits" / name).unlink()
    done = replay_quarantine(orders, refused.target, refused.engine)
    assert (done.verdict.records, done.verdict.passed) == (4, 1)
    refused.run(orders)
    replay_quarantine(orders, refused.target, refused.engine)
    assert contents(refused) == expected(-5)


@pytest.mark.campaign
def test_records_whose_rows_a_rewind_takes_back_are_in_quarantine_again(refused):
    orders = shop(-5)["orders"]
    replay_quarantine(orders, refused.target, refused.engine)
    refused.run(orders, [amounts(7, -8)])
    rewind(orders, refused.target, refused.engine, to_batch=0)
    assert refused.rows(orders, "order_id") == multiset([("o5",)])
    assert sum(refused.quarantined(orders).values()) == 4
    # What the two other batches had read is read again, under the rules of today.
    refused.run(orders)
    replay_quarantine(orders, refused.target, refused.engine)
    inside, _, outside = expected(-5)
    assert refused.rows(orders, "order_id") == inside + multiset([("o7",)])
    assert refused.quarantined(orders, "raw") == outside + multiset([(json.dumps(amounts(-8)[0]),)])
    assert exactly_once(refused, orders).passed


def test_a_replay_waits_for_no_run(refused):
    orders = shop(-5)["orders"]
    with (
        held(StreamRecords(refused.lake, orders.name).control.below("lease"), orders.name, "a run"),
        pytest.raises(LeaseHeldError),
    ):
        replay_quarantine(orders, refused.target, refused.engine)
    assert contents(refused) == expected(0)


def test_a_stream_without_a_feed_has_no_quarantine(tmp_path):
    target = Scratch(lake=Lake.at(tmp_path), landing=tmp_path, engine=None).target
    with raises("quarantine-missing"):
        replay_quarantine(shop(0)["copied"], target, None)
    assert not replay_quarantine(shop(0)["orders"], target, None).changes


class Session:
    """A session that takes confs and reads nothing."""

    conf = SimpleNamespace(set=lambda *_: None)


class Elsewhere:
    """An engine of a server, whose sessions no step uses."""

    def new(self):
        return Session()

    def close(self, session):
        pass

    def default_partitions(self):
        return 1

    def server(self):
        return QueryServer(jvm_pid=0, attachment=Path("attachment"))


@pytest.fixture
def interrupted(tmp_path):
    """A lake whose stream has a replay that was killed before its first step."""
    orders = shop(0)["orders"]
    records = StreamRecords(Lake.at(tmp_path), orders.name)
    records.write_manifest(first_manifest({}))
    verdict = asdict(Verdict(by_rule={}, records=2, passed=2))
    decided = {
        "verdict": verdict,
        "metadata": {"fingerprint": "", "rows_read": 2},
        "sinks": ["archive", "main"],
    }
    records.write_operation(replace(REPLAY.begin(orders.name, {}, decided), publishing=True))
    return records


def finished(records, stream):
    target = Scratch(lake=records.lake, landing=Path(records.lake.uri), engine=None).target
    return replay_quarantine(stream, target, Elsewhere())


def test_a_replay_whose_staged_files_are_missing_writes_nothing(interrupted):
    operation = interrupted.operation()
    with raises("staging-missing", "shop/orders", interrupted.lake.staging(interrupted.stream), operation.id):
        finished(interrupted, shop(0)["orders"])
    assert interrupted.operation() == operation


def test_a_replay_of_a_sink_that_was_removed_since_writes_nothing(interrupted):
    operation, orders = interrupted.operation(), shop(0)["orders"]
    with raises("sink-removed", "shop/orders", "'archive'", operation.id):
        finished(interrupted, replace(orders, sinks=(orders.main,)))
    assert interrupted.operation() == operation

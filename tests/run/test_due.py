"""What a tick decides about a stream, on a real lake: backlog, policy, lease, failures, sources that are down."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.leases import held
from tidemill import DeltaAppend, Feed, Json, Pipeline, RunWhen
from tidemill.errors import TerminalError, TransientError
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.tick import decision, decisions
from tidemill.run.decide.waiting import failure_position, pause_after
from tidemill.storage.lake import Lake
from tidemill.target.target import KafkaCluster, TopicBinding
from tidemill.testing import Scratch

LATER = timedelta(minutes=2)  # after `at_most_every`


def pipeline(**policy):
    shop = Pipeline("shop", run_when=RunWhen(**policy))

    @shop.stream(source=Feed("orders", format=Json("n INT")), sink=DeltaAppend())
    def orders(events):
        return events

    @shop.stream(source=orders, sink=DeltaAppend())
    def copied(orders):
        return orders

    return shop


@pytest.fixture(scope="module")
def original(engine, tmp_path_factory):
    """A folder with a lake in which both streams have read everything; tests get copies of it."""
    folder = tmp_path_factory.mktemp("due")
    scratch = Scratch(lake=Lake.at(folder / "lake"), landing=folder / "landing", engine=engine)
    scratch.drop_file("orders", [{"n": 1}])
    assert [result.outcome for result in scratch.run_all(pipeline())] == ["updated", "updated"]
    return folder


@pytest.fixture
def ran(original, engine, tmp_path):
    shutil.copytree(original, tmp_path / "copy")
    scratch = Scratch(lake=Lake.at(tmp_path / "copy/lake"), landing=tmp_path / "copy/landing", engine=engine)
    scratch.drop_file("other", [{"n": 0}])  # the next file of the feed gets another number
    return scratch


def states(scratch, shop, *, after=LATER, **options):
    now = datetime.now(UTC) + after
    return [(d.state, d.reason) for d in decisions(list(shop), scratch.target, now=now, **options)]


def failed(scratch, stream, error):
    """Record a failure as a run does."""
    records = StreamRecords(scratch.lake, stream.name)
    manifest = records.manifest()
    position = failure_position(stream, manifest, records.snapshot())
    records.write_manifest(manifest.with_failure("a-run", error, position))


def test_a_stream_is_due_when_there_is_something_to_do(ran):
    shop = pipeline()
    assert states(ran, shop) == [("idle", "nothing new")] * 2
    ran.drop_file("orders", [{"n": 2}])
    assert states(ran, shop) == [("due", "1 file in events"), ("idle", "nothing new")]
    # At most every minute.
    (state, reason), _ = states(ran, shop, after=timedelta(seconds=30))
    assert state == "waiting"
    assert "ended less than 0:01:00 ago" in reason


def test_a_policy_waits_for_more_and_a_schedule_does_not(ran):
    ran.drop_file("orders", [{"n": 2}])
    shop = pipeline(files=2)
    assert states(ran, shop)[0] == ("waiting", "waits for more: 1 of 2 files")
    assert states(ran, shop, conditions=False)[0][0] == "due"
    ran.drop_file("orders", [{"n": 3}])
    assert states(ran, shop)[0] == ("due", "2 of 2 files")


def test_a_stream_that_never_ran_is_due_whatever_its_policy(scratch):
    (scratch.landing / "orders").mkdir(parents=True)
    assert states(scratch, pipeline(files=100))[0] == ("due", "it has never run")


def test_missing_ledger_lines_are_due_whatever_the_policy(ran):
    shop = pipeline(files=100)
    records = StreamRecords(ran.lake, shop["orders"].name)
    records.write_manifest(records.manifest().with_active(ledger_batch=-1))
    assert states(ran, shop)[0] == ("due", "the ledger misses lines")


def test_a_held_stream_is_busy_and_its_holder_is_named(ran):
    shop = pipeline()
    ran.drop_file("orders", [{"n": 2}])
    with held(ran.lake.records(shop["orders"].name).below("lease"), shop["orders"].name, "the-other-run"):
        (state, reason), _ = states(ran, shop)
    assert state == "busy"
    assert "the-other-run" in reason


def test_a_terminal_failure_waits_for_a_change_of_the_code_or_the_checkpoint(ran):
    shop = pipeline()
    ran.drop_file("orders", [{"n": 2}])
    failed(ran, shop["orders"], TerminalError("the column is missing.", fix="put it back."))
    (state, reason), _ = states(ran, shop, after=timedelta(days=1))
    assert state == "failed"
    assert "the column is missing. No data was lost. Fix: put it back." in reason

    edited = Pipeline("shop")

    @edited.stream(source=Feed("orders", format=Json("n INT")), sink=DeltaAppend())
    def orders(events):
        return events.where("n IS NOT NULL")

    assert states(ran, edited)[0][0] == "due"
    ran.run(shop["orders"])  # by hand: the next batch is committed
    ran.drop_file("orders", [{"n": 3}])
    assert states(ran, shop)[0][0] == "due"


def test_a_transient_failure_is_tried_again_after_a_growing_pause(ran):
    shop = pipeline()
    ran.drop_file("orders", [{"n": 2}])
    for failures, pause in ((1, 1), (2, 2), (3, 4)):
        failed(ran, shop["orders"], TransientError("the broker is down."))
        assert pause_after(failures) == timedelta(minutes=pause)
        (state, reason), _ = states(ran, shop, after=timedelta(minutes=pause, seconds=-20))
        assert (state, reason[:7]) == ("failed", f"retry {failures}")
        assert states(ran, shop, after=timedelta(minutes=pause, seconds=20))[0][0] == "due"
    assert pause_after(50) == timedelta(hours=1)


def test_a_run_that_would_be_refused_is_named_with_its_reason(ran):
    shop = pipeline()
    ran.drop_file("orders", [{"n": 2}])
    Path(ran.lake.checkpoint(shop["orders"].name, 1).uri()).joinpath("offsets", "0").write_text("damaged")
    refused = decision(shop["orders"], ran.target, now=datetime.now(UTC) + LATER)
    assert refused.state == "refused"
    assert "offsets/0" in refused.reason
    again = decision(shop["orders"], ran.target, now=datetime.now(UTC) + LATER)
    assert again.position == refused.position, "a refusal is reported once"


def test_a_source_that_does_not_answer_is_named_and_the_others_go_on(ran, monkeypatch):
    monkeypatch.setattr("tidemill.connectors.kafka.client.ANSWER_SECONDS", 0.5)
    shop = pipeline()
    dead = shop.stream(source=Feed("dead", format=Json("n INT")), sink=DeltaAppend(), name="dead")(
        lambda rows: rows
    )
    ran.bindings["dead"] = TopicBinding(KafkaCluster(bootstrap="127.0.0.1:1"), "dead")
    ran.drop_file("orders", [{"n": 2}])
    made = {d.stream.name.stream: d for d in decisions(list(shop), ran.target, now=datetime.now(UTC) + LATER)}
    assert made["orders"].state == "due"
    assert made[dead.name.stream].state == "unreachable"
    assert "127.0.0.1:1 does not answer" in made["dead"].reason


def test_the_position_changes_with_new_data_and_with_nothing_else(ran):
    stream = pipeline()["orders"]
    now = datetime.now(UTC) + LATER
    first = decision(stream, ran.target, now=now).position
    assert decision(pipeline(files=9)["orders"], ran.target, now=now + LATER).position == first
    ran.drop_file("orders", [{"n": 2}])
    assert decision(stream, ran.target, now=now).position != first


def test_a_run_reports_a_damaged_checkpoint_with_its_file_and_the_command(ran):
    shop = pipeline()
    Path(ran.lake.checkpoint(shop["orders"].name, 1).uri()).joinpath("offsets", "0").write_text("damaged")
    orders, copied = ran.run_all(shop)
    assert orders.outcome == "failed"
    assert "shop/orders: offsets/0: It starts with 'damaged'" in str(orders.error)
    assert "Fix: tidemill checkpoint verify shop/orders" in str(orders.error)
    assert copied.outcome == "idle"

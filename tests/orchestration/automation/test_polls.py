"""Sources that cannot be counted: a run polls them by an interval, and status says when."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance, DagsterRun, DagsterRunStatus, build_sensor_context
from typer.testing import CliRunner

from tests.orchestration.shop import ORDERS, Shop
from tidemill import RunWhen
from tidemill.checks.evaluation import evaluate
from tidemill.cli.run.status import app
from tidemill.connectors.connector import Connector
from tidemill.connectors.files.connector import FileConnector
from tidemill.orchestration.assets.translator import stream_keys
from tidemill.orchestration.automation.sensors import backlog_sensor
from tidemill.run.decide.tick import decision

ORDERS_KEY = AssetKey(["shop", "orders"])


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A stream that has read everything, over a source that answers "unknown"."""
    monkeypatch.setattr(FileConnector, "backlog", Connector.backlog)
    made = Shop.make(tmp_path, monkeypatch)
    made.has_run("a.json")
    return made


def ended(shop, ago: timedelta) -> str:
    """Record that the last run ended some time ago."""
    path = Path(shop.target.lake.records(ORDERS).uri()) / "manifest.json"
    manifest = json.loads(path.read_text())
    moment = (datetime.now(UTC) - ago).isoformat()
    manifest["last_run"]["ended_at"] = moment
    path.write_text(json.dumps(manifest))
    return moment


def orders(shop):
    return shop.target.pipelines().pipelines["shop"]["orders"]


def decided(shop, *, conditions=True):
    made = decision(orders(shop), shop.target, now=datetime.now(UTC), conditions=conditions)
    return made.state, made.reason


def test_a_poll_is_due_when_its_interval_has_passed(shop):
    ended(shop, timedelta(minutes=9))
    state, reason = decided(shop)
    assert state == "waiting"
    assert reason.startswith("events cannot be counted, and the next poll is at ")
    ended(shop, timedelta(minutes=11))
    assert decided(shop) == ("due", "poll of events")


def test_a_schedule_always_looks(shop):
    ended(shop, timedelta(minutes=2))
    assert decided(shop, conditions=False) == ("due", "uncounted data in events")
    assert RunWhen(cron="0 6 * * *").next_poll(datetime.now(UTC)) is None


def test_timers_wait_for_their_time_also_at_the_ticks_of_a_schedule():
    now = datetime.now(UTC)
    assert RunWhen(cron="0 6 * * *", timers_every="1 hour").next_timers(now) == now + timedelta(hours=1)


def test_a_poll_that_finds_nothing_is_followed_by_the_next_after_the_interval(shop):
    pipeline = shop.target.pipelines().pipelines["shop"]
    sensor = backlog_sensor(pipeline, stream_keys(pipeline), target=shop.target)
    with DagsterInstance.ephemeral() as instance:

        def requested():
            result = sensor(build_sensor_context(instance=instance))
            return [run for run in result.run_requests if ORDERS_KEY in run.asset_selection]

        ended(shop, timedelta(minutes=11))
        (first,) = requested()
        instance.add_run(
            DagsterRun(
                "shop",
                status=DagsterRunStatus.SUCCESS,
                asset_selection=frozenset([ORDERS_KEY]),
                tags=first.tags,
            )
        )
        ended(shop, timedelta(minutes=1))  # it found nothing
        assert requested() == []
        ended(shop, timedelta(minutes=10, seconds=1))
        (second,) = requested()
    assert second.run_key != first.run_key


def test_status_states_that_a_source_is_polled_and_when(shop):
    ended(shop, timedelta(minutes=2))
    result = CliRunner().invoke(app, ["--json", "shop/orders"])
    (status,) = json.loads(result.stdout)["streams"]
    assert (result.exit_code, status["state"]) == (0, "idle")
    assert status["backlog"]["files"] == 0
    (poll,) = status["polls"]
    assert poll.startswith(
        "Source 'events' cannot be counted: feed orders has no backlog without Spark; a run "
    )
    assert "every 10 minutes, the next at " in poll
    ended(shop, timedelta(minutes=11))
    result = CliRunner().invoke(app, ["--json", "shop/orders"])
    assert json.loads(result.stdout)["streams"][0]["state"] == "behind"
    assert "not counted" in CliRunner().invoke(app, ["shop/orders"]).stdout


def test_a_source_that_is_polled_is_never_stuck(shop):
    later = datetime.now(UTC) + timedelta(days=2)
    checks = {check.name: check for check in evaluate(orders(shop), shop.target, now=later)}
    assert checks["backlog"].summary == "Nothing waits."

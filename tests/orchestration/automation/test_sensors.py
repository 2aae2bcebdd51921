"""The backlog sensor and the schedules: what a tick requests, and what keeps it from a second run."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster import (
    AssetKey,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    SensorResult,
    SkipReason,
    build_schedule_context,
    build_sensor_context,
)

from tests.orchestration.shop import ORDERS, UNIQUE, Shop
from tests.support.leases import held
from tidemill import DeltaAppend, Feed, Pipeline, Raw, RunWhen
from tidemill.orchestration.assets.translator import stream_keys
from tidemill.orchestration.automation import requests
from tidemill.orchestration.automation.requests import tick
from tidemill.orchestration.automation.sensors import backlog_sensor, schedules
from tidemill.run.decide.tick import Decision

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ORDERS_KEY, UNIQUE_KEY = AssetKey(["shop", "orders"]), AssetKey(["shop", "unique"])
FEED_KEY = AssetKey(["feed", "orders"])


@pytest.fixture
def instance():
    with DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def shop(tmp_path, monkeypatch):
    made = Shop.make(tmp_path, monkeypatch)
    made.has_run("a.json")
    # The last run ended long ago.
    path = Path(made.target.lake.records(ORDERS).uri()) / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["last_run"]["ended_at"] = "2026-01-01T00:00:00+00:00"
    path.write_text(json.dumps(manifest))
    return made


def evaluated(shop, instance, cursor=None) -> SensorResult:
    pipeline = shop.target.pipelines().pipelines["shop"]
    sensor = backlog_sensor(pipeline, stream_keys(pipeline), target=shop.target)
    return sensor(build_sensor_context(instance=instance, cursor=cursor))


def selections(result):
    return [set(request.asset_selection) for request in result.run_requests]


def a_run(instance, status, keys, *, tags=None, job="shop"):
    selection = None if keys is None else frozenset(keys)
    instance.add_run(DagsterRun(job, status=status, asset_selection=selection, tags=tags))
    return instance.get_runs(limit=1)[0].run_id


def test_a_tick_requests_what_should_move_and_nothing_else(shop, instance):
    assert selections(evaluated(shop, instance)) == [{UNIQUE_KEY}], "it has never run; orders is idle"
    shop.land("b.json")
    result = evaluated(shop, instance)
    assert selections(result) == [{ORDERS_KEY, UNIQUE_KEY}], "one run for streams that depend on each other"
    assert result.run_requests[0].tags["tidemill/cause"] == "backlog"


def test_a_queued_run_or_one_in_progress_is_not_doubled(shop, instance):
    shop.land("b.json")
    run_id = a_run(instance, DagsterRunStatus.NOT_STARTED, {ORDERS_KEY, UNIQUE_KEY})
    result = evaluated(shop, instance)
    assert result.run_requests == []
    assert f"shop/orders: run {run_id} covers it" in result.skip_reason.skip_message


def test_a_run_of_the_whole_job_covers_every_stream(shop, instance):
    shop.land("b.json")
    a_run(instance, DagsterRunStatus.STARTED, None)
    assert evaluated(shop, instance).run_requests == []


def test_a_run_of_another_job_covers_nothing(shop, instance):
    shop.land("b.json")
    a_run(instance, DagsterRunStatus.STARTED, None, job="other")
    assert selections(evaluated(shop, instance)) == [{ORDERS_KEY, UNIQUE_KEY}]


def test_a_run_that_died_long_ago_does_not_block_its_streams_forever(shop, instance, monkeypatch):
    """The default launcher does not notice a run whose host died: it stays STARTED."""
    shop.land("b.json")
    a_run(instance, DagsterRunStatus.STARTED, {ORDERS_KEY, UNIQUE_KEY})
    monkeypatch.setattr(requests, "STARTED_LONG_AGO", timedelta(seconds=-60))
    assert selections(evaluated(shop, instance)) == [{ORDERS_KEY, UNIQUE_KEY}]


def test_two_ticks_at_once_request_the_same_run(shop, instance):
    """Dagster starts one run per key, so a sensor that is killed between request and cursor repeats nothing."""
    shop.land("b.json")
    keys = {evaluated(shop, instance).run_requests[0].run_key for _ in range(2)}
    assert len(keys) == 1


def test_a_run_that_crashed_is_requested_again_after_a_growing_pause(shop, instance, monkeypatch):
    shop.land("b.json")
    request = evaluated(shop, instance).run_requests[0]
    run_id = a_run(instance, DagsterRunStatus.FAILURE, request.asset_selection, tags=request.tags)
    result = evaluated(shop, instance)
    assert result.run_requests == []
    assert f"run {run_id} ended as FAILURE and left everything as it was" in result.skip_reason.skip_message
    monkeypatch.setattr(requests, "pause_after", lambda runs: timedelta(seconds=-runs))
    assert evaluated(shop, instance).run_requests[0].run_key != request.run_key
    monkeypatch.undo()
    shop.land("c.json")  # another position: no pause
    monkeypatch.setenv("TIDEMILL_CONFIG", str(shop.root / "tidemill.toml"))
    assert len(evaluated(shop, instance).run_requests) == 1


def test_a_run_on_another_target_delays_nothing(shop, instance):
    """Targets with equal inputs are at equal positions."""
    shop.land("b.json")
    request = evaluated(shop, instance).run_requests[0]
    elsewhere = request.tags | {"tidemill/target": "other"}
    a_run(instance, DagsterRunStatus.FAILURE, set(request.asset_selection), tags=elsewhere)
    assert [again.run_key for again in evaluated(shop, instance).run_requests] == [request.run_key]


def test_a_held_stream_is_left_alone_and_its_holder_is_named(shop, instance):
    shop.land("b.json")
    with held(shop.target.lake.records(ORDERS).below("lease"), ORDERS, "the-other-run"):
        result = evaluated(shop, instance)
    assert selections(result) == [{UNIQUE_KEY}]


def test_a_refused_stream_is_run_once_so_that_the_refusal_is_reported(shop, instance, monkeypatch):
    checkpoint = Path(shop.target.lake.checkpoint(ORDERS, 1).uri())
    (checkpoint / "offsets" / "0").write_text("damaged")
    first, second = evaluated(shop, instance), evaluated(shop, instance)
    assert {ORDERS_KEY} in selections(first)
    keys = [sorted(request.run_key for request in result.run_requests) for result in (first, second)]
    assert keys[0] == keys[1], "Dagster starts one run per key"

    (request,) = (run for run in first.run_requests if set(run.asset_selection) == {ORDERS_KEY})
    run_id = a_run(instance, DagsterRunStatus.FAILURE, request.asset_selection, tags=request.tags)
    monkeypatch.setattr(requests, "pause_after", lambda runs: timedelta(seconds=-runs))
    with held(shop.target.lake.records(UNIQUE).below("lease"), UNIQUE, "the-other-run"):
        again = evaluated(shop, instance)
    assert again.run_requests == [], "no second run reports it, however long ago the first one was"
    assert f"(reported by run {run_id})" in again.skip_reason.skip_message
    assert "offsets/0" in again.skip_reason.skip_message

    path = Path(shop.target.lake.records(ORDERS).uri()) / "manifest.json"
    path.write_text(path.read_text().replace("run-1", "run-2"))
    assert {ORDERS_KEY} in selections(evaluated(shop, instance)), "it ran in between, and is refused again"


def test_a_run_that_crashes_forever_is_requested_forever(shop, instance, monkeypatch):
    """Dagster starts one run per key, so each attempt has a key of its own."""
    shop.land("b.json")
    monkeypatch.setattr(requests, "pause_after", lambda _runs: timedelta(seconds=-1))
    run_keys = []
    for _ in range(requests._MOST_ATTEMPTS + 3):
        (request,) = evaluated(shop, instance).run_requests
        run_keys.append(request.run_key)
        a_run(instance, DagsterRunStatus.FAILURE, request.asset_selection, tags=request.tags)
    assert len(set(run_keys)) == len(run_keys)


def test_a_feed_is_observed_when_it_changes(shop, instance):
    first = evaluated(shop, instance)
    (observation,) = first.asset_events
    assert observation.asset_key == FEED_KEY
    assert observation.metadata["tidemill/lag_files"].value == 0
    assert observation.metadata["tidemill/head"].value == "1 file, last a.json"
    assert evaluated(shop, instance, cursor=first.cursor).asset_events == []
    shop.land("b.json")
    (observation,) = evaluated(shop, instance, cursor=first.cursor).asset_events
    assert observation.metadata["tidemill/lag_files"].value == 1
    assert observation.tags["dagster/data_version"]


def test_a_reset_cursor_loses_and_repeats_no_run(shop, instance):
    shop.land("b.json")
    first = evaluated(shop, instance)
    again = evaluated(shop, instance, cursor=None)
    assert [r.run_key for r in first.run_requests] == [r.run_key for r in again.run_requests]
    assert evaluated(shop, instance, cursor="not JSON").run_requests == again.run_requests


def test_a_schedule_runs_what_has_something_to_read(shop, tmp_path):
    pipeline = Pipeline("shop", run_when=RunWhen(cron="0 6 * * *"))
    pipeline.stream(source=Feed("orders", format=Raw()), sink=DeltaAppend(), name="orders")(
        lambda events: events
    )
    (schedule,) = schedules(pipeline, stream_keys(pipeline), target=shop.target)
    assert schedule.cron_schedule == "0 6 * * *"
    instance = DagsterInstance.local_temp(str(tmp_path))
    context = build_schedule_context(instance=instance)
    skipped = schedule(context)
    assert isinstance(skipped, SkipReason), skipped
    assert skipped.skip_message == "Every stream is idle."
    shop.land("b.json")
    (request,) = schedule(context)
    assert request.asset_selection == [ORDERS_KEY]
    assert request.tags["tidemill/cause"] == "schedule"
    sensor = backlog_sensor(pipeline, stream_keys(pipeline), target=shop.target)
    assert sensor(build_sensor_context(instance=instance)).run_requests == []


def two_chains():
    """a -> b -> c, d -> e, and f, which reads c and has a policy of its own."""
    shop = Pipeline("shop")

    def stream(name, source, **fields):
        return shop.stream(source=source, sink=DeltaAppend(), name=name, **fields)(lambda rows: rows)

    a, d = (stream(name, Feed(name, format=Raw())) for name in "ad")
    b = stream("b", a)
    c = stream("c", b)
    stream("e", d)
    stream("f", c, run_when=RunWhen(rows=1_000))
    return shop


@pytest.mark.parametrize(
    ("states", "covered", "groups"),
    [
        ({"a": "due"}, "", ["abc"]),
        ({"a": "due", "d": "due"}, "", ["abc", "de"]),
        ({"b": "due", "f": "due"}, "", ["bcf"]),
        ({"a": "due", "c": "failed"}, "", ["ab"]),
        ({"a": "due", "b": "busy"}, "", ["a"]),
        ({"a": "due", "d": "due"}, "d", ["abc"]),
        ({"a": "due"}, "c", ["ab"]),
        ({"e": "refused", "a": "due"}, "", ["abc", "e"]),
        ({"a": "waiting", "d": "failed"}, "", []),
        ({"a": "due", "c": "due"}, "b", ["a", "c"]),
    ],
)
def test_streams_that_depend_on_each_other_run_together(monkeypatch, states, covered, groups):
    shop = two_chains()

    def canned(streams, *_args, **_options):
        return [
            Decision(stream=stream, state=states.get(stream.name.stream, "idle"), reason="r", position="p")
            for stream in streams
        ]

    monkeypatch.setattr("tidemill.orchestration.automation.requests.decisions", canned)
    by_run = {shop[name].name: "run-1" for name in covered}
    decided = tick(shop, None, candidates=list(shop), covered=by_run, now=NOW, conditions=True)
    assert ["".join(stream.name.stream for stream in group.streams) for group in decided.groups] == groups

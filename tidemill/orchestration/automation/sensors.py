"""The backlog sensor of a pipeline, which starts runs when there is something to read, and its schedules."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dagster import (
    AssetObservation,
    DefaultScheduleStatus,
    DefaultSensorStatus,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    schedule,
    sensor,
)

from tidemill.orchestration.assets.observations import FeedState, feed_states
from tidemill.orchestration.assets.translator import StreamTranslator, external_key
from tidemill.orchestration.automation.requests import requests

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagster import AssetKey

    from tidemill.definitions.pipeline import Pipeline
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName

INTERVAL_SECONDS = 30
_THREADS = 8


def backlog_sensor(
    pipeline: "Pipeline",
    keys: "Mapping[StreamName, AssetKey]",
    *,
    target: "Target",
    translator: StreamTranslator | None = None,
    running: bool = False,
    prefix: str = "",
) -> SensorDefinition:
    """Return the sensor that starts runs of a pipeline's streams by their `run_when`.

    A tick decides for each stream as a run would, without a JVM, and requests one run per group of streams that
    depend on each other. It keeps nothing that matters in its cursor, which only spares equal observations of
    the feeds.

    Args:
        pipeline: The pipeline; its job has the same name, after the prefix.
        translator: How a feed becomes an asset.
        running: Whether the sensor runs as soon as the code location is loaded; otherwise it is switched on in
            the UI.
    """
    candidates = [stream for stream in pipeline if stream.run_when.cron is None]

    @sensor(
        name=f"{prefix}{pipeline.name}__backlog",
        job_name=f"{prefix}{pipeline.name}",
        minimum_interval_seconds=INTERVAL_SECONDS,
        description=f"Runs the streams of {pipeline.name} that have something to read.",
        default_status=DefaultSensorStatus.RUNNING if running else DefaultSensorStatus.STOPPED,
    )
    def evaluate(context: SensorEvaluationContext) -> SensorResult:
        requested = requests(
            context.instance, pipeline, keys, target, candidates=candidates, cause="backlog", prefix=prefix
        )
        for note in requested.notes:
            context.log.info(note)
        known = _known(context.cursor)
        states = [
            state for state in feed_states(requested.decisions) if known.get(state.feed) != state.version
        ]
        return SensorResult(
            run_requests=requested.runs,
            skip_reason=None if requested.runs else requested.skip_reason,
            asset_events=_observations(states, translator or StreamTranslator(), target),
            cursor=json.dumps(known | {state.feed: state.version for state in states}, sort_keys=True),
        )

    return evaluate


def _known(cursor: str | None) -> dict[str, str]:
    """Return the version of each feed that was observed last; nothing where the cursor was reset."""
    try:
        known = json.loads(cursor or "{}")
    except ValueError:
        return {}
    return known if isinstance(known, dict) else {}


def _observations(
    states: "Sequence[FeedState]", translator: StreamTranslator, target: "Target"
) -> list[AssetObservation]:
    """Return the observations of the feeds that have changed; each costs a round trip for the age of its data."""
    now = datetime.now(UTC)
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(
            pool.map(
                lambda state: state.observation(external_key(state.source, translator, target), now), states
            )
        )


def schedules(
    pipeline: "Pipeline",
    keys: "Mapping[StreamName, AssetKey]",
    *,
    target: "Target",
    running: bool = False,
    prefix: str = "",
) -> list[ScheduleDefinition]:
    """Return a schedule for each cron expression of the pipeline's streams.

    A tick runs the streams of that schedule that have something to read; without any it is skipped.

    Args:
        running: Whether the schedules run as soon as the code location is loaded.
    """
    expressions = dict.fromkeys(
        stream.run_when.cron for stream in pipeline if stream.run_when.cron is not None
    )
    return [
        _schedule(pipeline, keys, cron=cron, number=number, target=target, running=running, prefix=prefix)
        for number, cron in enumerate(expressions, start=1)
    ]


def _schedule(
    pipeline: "Pipeline",
    keys: "Mapping[StreamName, AssetKey]",
    *,
    cron: str,
    number: int,
    target: "Target",
    running: bool,
    prefix: str,
) -> ScheduleDefinition:
    candidates = [stream for stream in pipeline if stream.run_when.cron == cron]
    names = ", ".join(stream.name.stream for stream in candidates)

    @schedule(
        name=f"{prefix}{pipeline.name}__schedule_{number}",
        cron_schedule=cron,
        job_name=f"{prefix}{pipeline.name}",
        description=f"Runs {names} of {pipeline.name}, where there is something to read.",
        default_status=DefaultScheduleStatus.RUNNING if running else DefaultScheduleStatus.STOPPED,
    )
    def evaluate(context: ScheduleEvaluationContext) -> list[RunRequest] | SkipReason:
        requested = requests(
            context.instance, pipeline, keys, target, candidates=candidates, cause="schedule", prefix=prefix
        )
        return requested.runs or SkipReason(requested.skip_reason)

    return evaluate

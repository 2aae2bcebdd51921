"""The schedules of a pipeline: one per cron expression that its streams have."""

from typing import TYPE_CHECKING

from dagster import (
    DefaultScheduleStatus,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    schedule,
)

from tidemill.orchestration.automation.requests import requests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagster import AssetKey

    from tidemill.definitions.pipeline import Pipeline
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName


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
        target: The target of the code location.
        running: Whether the schedules run as soon as the code location is loaded.
        prefix: What the names of the schedules and of the job begin with, such as `prod__`.
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

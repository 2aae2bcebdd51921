"""The tags of a run: on which target it works, on which pipelines, and what caused it."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagster import DagsterInstance

TARGET = "tidemill/target"
PIPELINE = "tidemill/pipeline"
CAUSE = "tidemill/cause"
# The tags by which Dagster marks what launched a run, the most specific first.
_LAUNCHED_BY = {
    "dagster/parent_run_id": "retry",
    "dagster/backfill": "backfill",
    "dagster/schedule_name": "schedule",
    "dagster/from_automation_condition": "automation",
    "dagster/auto_materialize": "automation",
    "dagster/sensor_name": "sensor",
}


def job_tags(target: str | None, pipeline: str) -> dict[str, str]:
    """Return the tags that a run of a pipeline's job has from the start, while it is queued."""
    return {PIPELINE: pipeline} if target is None else {TARGET: target, PIPELINE: pipeline}


def tag_run(instance: "DagsterInstance", run_id: str, target: str, pipelines: Iterable[str]) -> None:
    """Add the target, the pipelines and the cause to the tags of a run."""
    run = instance.get_run_by_id(run_id)
    if run is not None and (tags := added_tags(run.tags, target, pipelines)):
        instance.add_run_tags(run_id, tags)


def added_tags(given: Mapping[str, str], target: str, pipelines: Iterable[str]) -> dict[str, str]:
    """Return the tags that a run lacks, as it starts to work on streams.

    Args:
        given: The tags that it has. A run of several pipelines has the names of all, joined by commas; a cause
            that a sensor has stated is kept.
    """
    known = [name for name in given.get(PIPELINE, "").split(",") if name]
    tags = {
        TARGET: target,
        PIPELINE: ",".join(dict.fromkeys([*known, *pipelines])),
        CAUSE: given.get(CAUSE) or cause(given),
    }
    return {key: value for key, value in tags.items() if given.get(key) != value}


def cause(tags: Mapping[str, str]) -> str:
    """Return what launched a run, with its name: `sensor:ads_backlog`, or `manual`."""
    for tag, kind in _LAUNCHED_BY.items():
        if tag in tags:
            return kind if kind == "automation" else f"{kind}:{tags[tag]}"
    return "manual"

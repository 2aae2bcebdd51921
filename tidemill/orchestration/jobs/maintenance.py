"""The job and the schedule that maintain the tables of a pipeline."""

from functools import partial
from typing import TYPE_CHECKING

from dagster import Config, DefaultScheduleStatus, ScheduleDefinition
from pydantic import Field

from tidemill.definitions.selection import select
from tidemill.operations.housekeeping.maintain import maintain
from tidemill.orchestration.jobs.operation_job import Done, operation_job
from tidemill.text.durations import flag_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagster import JobDefinition

    from tidemill.definitions.pipeline import Pipeline
    from tidemill.operations import Maintenance
    from tidemill.orchestration.jobs.operation_job import Keys
    from tidemill.orchestration.spark_resource import SparkResource
    from tidemill.target.target import Target

_DAILY = "17 2 * * *"


class MaintenanceConfig(Config):
    """The config of a run of the job.

    Attributes:
        keep: How far back streams can be rewound afterwards: `7d`, `12h`.
        selection: Maintains only these streams of the pipeline, in the words of the command.
    """

    keep: str = Field(default="7d", description="How far back streams can be rewound afterwards: 7d, 12h.")
    selection: list[str] = Field(
        default_factory=list, description="Maintains only these streams: shop/orders, shop/orders+."
    )


def maintenance_job(pipeline: "Pipeline", keys: "Keys", *, target: "Target | None" = None) -> "JobDefinition":
    """Return the job `<pipeline>__maintain`, which does what `tidemill maintain` does and records an observation.

    Args:
        pipeline: The pipeline.
        keys: The asset keys of its streams.
        target: The target, which the runs are tagged with.
    """
    return operation_job(
        pipeline,
        keys,
        partial(_carry_out, pipeline),
        name="maintain",
        op_name="maintain_tables",
        description=f"Compacts the tables of {pipeline.name}, and removes files and commits that nothing needs.",
        config=MaintenanceConfig,
        target=target,
    )


def _carry_out(pipeline: "Pipeline", config: MaintenanceConfig, spark: "SparkResource") -> "Iterator[Done]":
    target = spark.resolved_target
    known = target.pipelines().every_stream()
    keep = flag_duration(config.keep, what="keep")
    for stream in select(tuple(pipeline), config.selection):
        result = maintain(stream, target, spark.engine, streams=known, keep=keep)
        metadata = _metadata(result) if result.outcome == "maintained" else None
        yield Done(stream.name, f"{result.outcome} {result.reason}".strip(), metadata)


def maintenance_schedule(pipeline: "Pipeline") -> ScheduleDefinition:
    """Return a daily schedule of the job, which is stopped until somebody turns it on.

    Args:
        pipeline: The pipeline.
    """
    return ScheduleDefinition(
        name=f"{pipeline.name}__maintain_daily",
        job_name=f"{pipeline.name}__maintain",
        cron_schedule=_DAILY,
        description=f"Maintains the tables of {pipeline.name}.",
        default_status=DefaultScheduleStatus.STOPPED,
    )


def _metadata(result: "Maintenance") -> dict[str, int]:
    tables = result.tables
    return {
        "tidemill/compacted_files": sum(table.small_files for table in tables),
        "tidemill/removed_files": sum(table.files for table in tables),
        "tidemill/removed_bytes": sum(table.bytes for table in tables),
        "tidemill/removed_log_files": sum(table.log_files for table in tables),
        "tidemill/data_files": sum((table.after or table.before).files for table in tables),
    }

"""The job and the schedule that maintain the tables of a pipeline."""

from typing import TYPE_CHECKING

from dagster import (
    AssetKey,
    AssetObservation,
    Config,
    DefaultScheduleStatus,
    Failure,
    JobDefinition,
    OpExecutionContext,
    ScheduleDefinition,
    in_process_executor,
    job,
    op,
)
from pydantic import Field

from orchestration.run_tags import job_tags
from pipelines.streaming.durations import flag_duration
from pipelines.streaming.errors import TidemillError
from pipelines.streaming.lifecycle import maintain
from pipelines.streaming.selection import select
from resources.spark import SparkResource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipelines.streaming import Pipeline
    from pipelines.streaming.lifecycle import Maintenance
    from pipelines.streaming.names import StreamName
    from pipelines.streaming.target import Target

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


def maintenance_job(
    pipeline: "Pipeline", keys: "Mapping[StreamName, AssetKey]", *, target: "Target | None" = None
) -> JobDefinition:
    """Return the job `<pipeline>__maintain`, which does what `tidemill maintain` does and records an observation.

    Args:
        pipeline: The pipeline.
        keys: The asset keys of its streams.
        target: The target, which the runs are tagged with.
    """

    @op(name=f"{pipeline.name}__maintain_tables", description=f"Maintains the tables of {pipeline.name}.")
    def maintain_tables(context: OpExecutionContext, config: MaintenanceConfig, spark: SparkResource) -> None:
        try:
            known = spark.resolved_target.pipelines().every_stream()
            keep = flag_duration(config.keep, what="keep")
            for stream in select(tuple(pipeline), config.selection):
                result = maintain(stream, spark.resolved_target, spark.engine, streams=known, keep=keep)
                context.log.info("%s: %s %s", stream.name, result.outcome, result.reason)
                if result.outcome == "maintained":
                    key = keys.get(stream.name) or AssetKey([stream.name.pipeline, stream.name.stream])
                    context.log_event(AssetObservation(key, metadata=_metadata(result)))
        except TidemillError as error:  # its text says it all; a stack would bury it
            raise Failure(description=str(error), allow_retries=error.transient) from None

    @job(
        # Two underscores: no pipeline, and so no other job, can have this name.
        name=f"{pipeline.name}__maintain",
        description=f"Compacts the tables of {pipeline.name}, and removes files and commits that nothing needs.",
        executor_def=in_process_executor,
        tags=job_tags(None if target is None else target.name, pipeline.name),
    )
    def maintain_pipeline() -> None:
        maintain_tables()

    return maintain_pipeline


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

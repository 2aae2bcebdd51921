"""The job that replays a range of streams, so that the UI shows who replayed what."""

from typing import TYPE_CHECKING
from uuid import uuid4

from dagster import (
    AssetKey,
    AssetObservation,
    Config,
    Failure,
    JobDefinition,
    OpExecutionContext,
    in_process_executor,
    job,
    op,
)
from pydantic import Field

from orchestration.run_tags import job_tags
from pipelines.streaming.errors import TidemillError
from pipelines.streaming.lifecycle import rebuild, replay_range
from pipelines.streaming.records import StreamRecords
from pipelines.streaming.selection import select
from resources.spark import SparkResource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pipelines.streaming import Pipeline
    from pipelines.streaming.lifecycle import Change
    from pipelines.streaming.names import StreamName
    from pipelines.streaming.stream import Stream
    from pipelines.streaming.target import Target


class BackfillConfig(Config):
    """The config of a run of the job.

    Attributes:
        selection: The streams, in the words of the command.
        begin: The first value of `backfill_by` that is replaced; None with `end` for a rebuild.
        end: The first value that is not.
        downstream: Whether the streams that read the selected ones are replayed as well.
        allow_missing: Whether to continue where sources no longer have everything.
    """

    selection: list[str] = Field(description="The streams to replay: shop/orders, shop/orders+.")
    begin: str | None = Field(
        default=None,
        description="The first value of backfill_by, such as 2026-01-31. Without a range: a rebuild.",
    )
    end: str | None = Field(default=None, description="The first value that is not in the range.")
    downstream: bool = Field(default=False, description="Also the streams that read the selected ones.")
    allow_missing: bool = Field(
        default=False, description="Continue where sources no longer have everything that is needed."
    )


def backfill_job(
    pipeline: "Pipeline", keys: "Mapping[StreamName, AssetKey]", *, target: "Target | None" = None
) -> JobDefinition:
    """Return the job `<pipeline>__backfill`, which does what `tidemill backfill` and `tidemill rebuild` do.

    Args:
        pipeline: The pipeline.
        keys: The asset keys of its streams.
        target: The target, which the runs are tagged with.
    """

    @op(name=f"{pipeline.name}__replay", description=f"Replays streams of {pipeline.name}.")
    def replay_streams(context: OpExecutionContext, config: BackfillConfig, spark: SparkResource) -> None:
        try:
            for stream, change in _replayed(pipeline, config, spark):
                context.log.info("%s: %s %s", stream.name, change.what, change.outcome)
                key = keys.get(stream.name) or AssetKey([stream.name.pipeline, stream.name.stream])
                description = f"{change.what} {change.outcome}".strip()
                metadata = _metadata(stream, spark.resolved_target)
                context.log_event(AssetObservation(key, description=description, metadata=metadata))
        except TidemillError as error:  # its text says it all; a stack would bury it
            raise Failure(description=str(error), allow_retries=error.transient) from None

    @job(
        # Two underscores: no pipeline, and so no other job, can have this name.
        name=f"{pipeline.name}__backfill",
        description=f"Replays a range of streams of {pipeline.name}, or rebuilds them.",
        executor_def=in_process_executor,
        tags=job_tags(None if target is None else target.name, pipeline.name),
    )
    def backfill_pipeline() -> None:
        replay_streams()

    return backfill_pipeline


def _replayed(
    pipeline: "Pipeline", config: BackfillConfig, spark: SparkResource
) -> "Iterator[tuple[Stream, Change]]":
    """Replay the streams of a config in dependency order, and yield each with what was done.

    Raises:
        Failure: Only one end of the range is given.
        TidemillError: It is not possible.
    """
    if (config.begin is None) != (config.end is None):
        raise Failure("Give both begin and end, or none of them for a rebuild.", allow_retries=False)
    others = [
        one for one in spark.resolved_target.pipelines().pipelines.values() if one.name != pipeline.name
    ]
    known = [stream for one in (pipeline, *others) for stream in one]  # readers may be in other pipelines
    plus = "+" if config.downstream else ""
    streams = select(known, [f"{name.removesuffix(plus)}{plus}" for name in config.selection])
    chosen = {stream.name for stream in select(known, config.selection)}
    replayed = {stream.name for stream in streams}
    readers = [stream for stream in known if stream.name not in replayed]
    for stream in streams:
        if config.begin is None or config.end is None:
            yield (
                stream,
                rebuild(
                    stream,
                    spark.resolved_target,
                    spark.engine,
                    allow_missing=config.allow_missing,
                    readers=readers,
                ),
            )
        else:
            change = replay_range(
                stream,
                spark.resolved_target,
                spark.engine,
                begin=config.begin,
                end=config.end,
                run_id=f"backfill-{uuid4().hex[:8]}",
                selected=chosen,
                allow_missing=config.allow_missing,
                readers=readers,
            )
            yield stream, change


def _metadata(stream: "Stream", target: "Target") -> dict[str, int | str]:
    """Return what the last operation of a stream has done, as metadata."""
    operation = StreamRecords(target.lake, stream.name).operations()[-1]
    numbers: dict[str, int | str] = {f"tidemill/{name}": value for name, value in operation.result.items()}
    return numbers | {"tidemill/operation": operation.id, "tidemill/command": operation.command}

"""The job that replays a range of streams, so that the UI shows who replayed what."""

from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from dagster import Config, Failure
from pydantic import Field

from tidemill.definitions.selection import select
from tidemill.errors import TidemillError
from tidemill.operations.replay.rebuild import rebuild
from tidemill.operations.replay.replay_range import replay_range
from tidemill.orchestration.jobs.operation_job import PlannedConfig, carried_out, operation_job
from tidemill.text.durations import flag_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dagster import JobDefinition

    from tidemill.definitions.pipeline import Pipeline
    from tidemill.orchestration.jobs.operation_job import Done, Keys
    from tidemill.orchestration.spark_resource import SparkResource
    from tidemill.target.target import Target


class ReplayConfig(Config):
    """How streams are replayed.

    Attributes:
        downstream: Whether the streams that read the selected ones are replayed as well.
        lookback: How much of the sources is read before and after the range; None for what each stream declares.
        allow_missing: Whether to continue where sources no longer have everything.
    """

    downstream: bool = Field(default=False, description="Also the streams that read the selected ones.")
    lookback: str | None = Field(
        default=None,
        description="Read only what is this close to the range, by the times of files, messages and commits: "
        "12h, 2d. Without it: what each stream declares, or everything.",
    )
    allow_missing: bool = Field(
        default=False, description="Continue where sources no longer have everything that is needed."
    )


class BackfillConfig(ReplayConfig, PlannedConfig):
    """The config of a run of the job.

    Attributes:
        selection: The streams, in the words of the command.
        begin: The first value of `backfill_by` that is replaced; None with `end` for a rebuild.
        end: The first value that is not.
    """

    selection: list[str] = Field(description="The streams to replay: shop/orders, shop/orders+.")
    begin: str | None = Field(
        default=None,
        description="The first value of backfill_by, such as 2026-01-31. Without a range: a rebuild.",
    )
    end: str | None = Field(default=None, description="The first value that is not in the range.")


def backfill_job(pipeline: "Pipeline", keys: "Keys", *, target: "Target | None" = None) -> "JobDefinition":
    """Return the job `<pipeline>__backfill`, which does what `tidemill backfill` and `tidemill rebuild` do.

    Args:
        pipeline: The pipeline.
        keys: The asset keys of its streams.
        target: The target, which the runs are tagged with.
    """
    return operation_job(
        pipeline,
        keys,
        partial(_carry_out, pipeline),
        name="backfill",
        op_name="replay",
        description=f"Replays a range of streams of {pipeline.name}, or rebuilds them.",
        config=BackfillConfig,
        target=target,
    )


def _carry_out(pipeline: "Pipeline", config: BackfillConfig, spark: "SparkResource") -> "Iterator[Done]":
    """Replay what a config asks for.

    Raises:
        Failure: Only one end of the range is given.
        TidemillError: It is not possible.
    """
    if (config.begin is None) != (config.end is None):
        raise Failure("Give both begin and end, or none of them for a rebuild.", allow_retries=False)
    span = None if config.begin is None or config.end is None else (config.begin, config.end)
    yield from replayed(pipeline, config.selection, span, config, spark, dry_run=config.dry_run)


def replayed(
    pipeline: "Pipeline",
    selection: "Sequence[str]",
    span: tuple[str, str] | None,
    config: ReplayConfig,
    spark: "SparkResource",
    *,
    dry_run: bool = False,
) -> "Iterator[Done]":
    """Replay streams in dependency order, and yield what was done to each.

    Args:
        pipeline: The pipeline; readers may be in others.
        selection: The streams, in the words of the command.
        span: The range of `backfill_by`; None for a rebuild.
        config: Whether the readers are replayed as well, and how.
        spark: The Spark and the target.
        dry_run: Whether the replays are planned only.

    Raises:
        TidemillError: It is not possible.
    """
    target = spark.resolved_target
    others = [one for one in target.pipelines().pipelines.values() if one.name != pipeline.name]
    known = [stream for one in (pipeline, *others) for stream in one]
    plus = "+" if config.downstream else ""
    streams = select(known, [f"{name.removesuffix(plus)}{plus}" for name in selection])
    names = {stream.name for stream in streams}
    readers = [stream for stream in known if stream.name not in names]
    again = partial(rebuild, allow_missing=config.allow_missing, readers=readers)
    lookback = None if config.lookback is None else flag_duration(config.lookback, what="lookback")
    if span is not None:
        again = partial(
            replay_range,
            begin=span[0],
            end=span[1],
            run_id=f"backfill-{uuid4().hex[:8]}",
            selected={stream.name for stream in select(known, selection)},
            lookback=lookback,
            allow_missing=config.allow_missing,
            readers=readers,
        )
    for stream in streams:
        try:
            change = partial(again, stream, target, spark.engine)
            done = carried_out(change, stream.name, target, dry_run=dry_run)
        except TidemillError as error:
            raise error.of(stream.name) from error
        yield done

"""The jobs of a pipeline that do what commands of `tidemill` do: rewind, reset, quarantine replay and prune."""

from functools import partial
from typing import TYPE_CHECKING, Literal

from dagster import Failure
from pydantic import Field

from tidemill import operations as lifecycle
from tidemill.connectors.feed import feed_of
from tidemill.definitions.selection import select
from tidemill.orchestration.jobs.operation_job import Done, PlannedConfig, carried_out, operation_job
from tidemill.text.durations import flag_duration, flag_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagster import JobDefinition

    from tidemill.definitions.pipeline import Pipeline
    from tidemill.definitions.stream import Stream
    from tidemill.orchestration.jobs.operation_job import Keys
    from tidemill.orchestration.spark_resource import SparkResource
    from tidemill.target.target import Target


class RewindConfig(PlannedConfig):
    """The config of a run that rewinds a stream.

    Attributes:
        stream: The stream.
        to_batch: The last batch that stays.
        to_time: Instead of a batch: a time, whose last batch stays.
    """

    stream: str = Field(description="The stream: shop/orders.")
    to_batch: int | None = Field(default=None, ge=0, description="The last batch that stays.")
    to_time: str | None = Field(
        default=None, description="Or the last batch of this time: 2026-01-31T12:00, UTC without an offset."
    )


class ResetConfig(PlannedConfig):
    """The config of a run that resets a stream.

    Attributes:
        stream: The stream.
        start: Where it continues.
        table: What happens to the rows of its tables.
        allow_doubled: Whether rows may be added a second time.
        allow_skipped: Whether data may be left unread.
    """

    stream: str = Field(description="The stream: shop/orders.")
    start: str = Field(description="earliest, now, or offsets by source as JSON.")
    table: Literal["keep", "replace", "new"] = Field(
        description="Keep the rows, replace them, or replace them and keep a copy (new)."
    )
    allow_doubled: bool = Field(default=False, description="Rows may be added a second time.")
    allow_skipped: bool = Field(default=False, description="Data may be left unread.")


class SelectionConfig(PlannedConfig):
    """The config of a run on streams of the pipeline.

    Attributes:
        selection: Only these streams of the pipeline, in the words of the command.
    """

    selection: list[str] = Field(default_factory=list, description="Only these streams: shop/orders.")


class PruneConfig(SelectionConfig):
    """The config of a run that removes what operations have left behind.

    Attributes:
        older_than: The age past which something is removed.
    """

    older_than: str = Field(default="30d", description="The age past which something is removed: 30d, 12h.")


def lifecycle_jobs(
    pipeline: "Pipeline", keys: "Keys", *, target: "Target | None" = None
) -> "list[JobDefinition]":
    """Return the jobs `<pipeline>__rewind`, `__reset`, `__replay_quarantine` and `__prune`.

    Args:
        pipeline: The pipeline.
        keys: The asset keys of its streams.
        target: The target, which the runs are tagged with.
    """
    name = pipeline.name
    return [
        operation_job(
            pipeline,
            keys,
            partial(carry_out, pipeline),
            name=operation,
            op_name=op_name,
            description=description,
            config=config,
            target=target,
        )
        for operation, op_name, description, config, carry_out in (
            ("rewind", "rewind_stream", f"Takes a stream of {name} back to a batch.", RewindConfig, _rewind),
            ("reset", "reset_stream", f"Continues a stream of {name} elsewhere.", ResetConfig, _reset),
            (
                "replay_quarantine",
                "replay_refused",
                f"Moves refused records of {name} that pass today's schema and rules into their tables.",
                SelectionConfig,
                _replay_quarantine,
            ),
            (
                "prune",
                "remove_leftovers",
                f"Removes what earlier generations and operations of {name} have left behind.",
                PruneConfig,
                _prune,
            ),
        )
    ]


def _rewind(pipeline: "Pipeline", config: RewindConfig, spark: "SparkResource") -> "Iterator[Done]":
    if (config.to_batch is None) == (config.to_time is None):
        raise Failure("Give either to_batch or to_time.", allow_retries=False)
    stream, target = _one(pipeline, config.stream), spark.resolved_target
    rewind = partial(
        lifecycle.rewind,
        stream,
        target,
        spark.engine,
        to_batch=config.to_batch,
        to_time=None if config.to_time is None else flag_time(config.to_time, what="to_time"),
        readers=target.pipelines().streams(),
    )
    yield carried_out(rewind, stream.name, target, dry_run=config.dry_run)


def _reset(pipeline: "Pipeline", config: ResetConfig, spark: "SparkResource") -> "Iterator[Done]":
    stream, target = _one(pipeline, config.stream), spark.resolved_target
    reset = partial(
        lifecycle.reset,
        stream,
        target,
        spark.engine,
        start=config.start,
        table=config.table,
        allow_doubled=config.allow_doubled,
        allow_skipped=config.allow_skipped,
    )
    yield carried_out(reset, stream.name, target, dry_run=config.dry_run)


def _replay_quarantine(
    pipeline: "Pipeline", config: SelectionConfig, spark: "SparkResource"
) -> "Iterator[Done]":
    target = spark.resolved_target
    readers = target.pipelines().streams()
    for stream in select(tuple(pipeline), config.selection):
        if feed_of(stream) is None:
            continue
        replay = partial(lifecycle.replay_quarantine, stream, target, spark.engine, readers=readers)
        yield carried_out(replay, stream.name, target, dry_run=config.dry_run)


def _prune(pipeline: "Pipeline", config: PruneConfig, spark: "SparkResource") -> "Iterator[Done]":
    target = spark.resolved_target
    age = flag_duration(config.older_than, what="older_than")
    for stream in select(tuple(pipeline), config.selection):
        result = lifecycle.prune(stream, target, spark.engine, older_than=age, dry_run=config.dry_run)
        leftovers = "; ".join(leftover.what for leftover in result.leftovers)
        summary = f"{result.outcome} {result.reason or leftovers}".strip()
        removed = {
            "tidemill/removed_leftovers": len(result.leftovers),
            "tidemill/removed_bytes": result.bytes,
        }
        yield Done(stream.name, summary, removed if result.outcome == "pruned" else None)


def _one(pipeline: "Pipeline", name: str) -> "Stream":
    """Return a stream by its name.

    Raises:
        Failure: The name selects several streams.
        ConfigurationError: It selects none.
    """
    streams = select(tuple(pipeline), [name])
    if len(streams) != 1:
        raise Failure(f"{name!r} selects {len(streams)} streams. Name one.", allow_retries=False)
    return streams[0]

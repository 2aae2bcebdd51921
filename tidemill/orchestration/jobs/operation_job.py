"""The job of an operation on streams: one op that carries it out and records an observation of each asset."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetObservation,
    Config,
    Failure,
    JobDefinition,
    OpExecutionContext,
    get_dagster_logger,
    in_process_executor,
    job,
    op,
)
from pydantic import Field

from tidemill.errors import LeaseHeldError, TidemillError
from tidemill.orchestration.automation.run_tags import job_tags
from tidemill.orchestration.spark_resource import SparkResource
from tidemill.records.stream_records import StreamRecords

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemill.definitions.pipeline import Pipeline
    from tidemill.records.operation import Operation
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName

Keys = Mapping["StreamName", AssetKey]
T = TypeVar("T")
# Nobody is there to repeat the command. Days that are selected with gaps are runs at once, and replay one by one.
_WAIT_SECONDS = 3600.0
_POLL_SECONDS = 2.0


class PlannedConfig(Config):
    """The config of a run that can plan only.

    Attributes:
        dry_run: Whether the plan is logged and nothing changes.
    """

    dry_run: bool = Field(default=False, description="Log the plan and change nothing.")


class Planned(Protocol):
    """A plan, or what was done."""

    @property
    def what(self) -> str:
        """The change, in one sentence."""

    @property
    def effects(self) -> "Sequence[str]":
        """What follows from it, one sentence each."""

    @property
    def outcome(self) -> str:
        """What it has done, in a sentence; empty where the plan says it all."""


@dataclass(frozen=True, slots=True)
class Done:
    """What an operation has done to a stream.

    Attributes:
        stream: The stream.
        summary: What was done, in a sentence.
        metadata: Its numbers; None where nothing changed, so that no observation is recorded.
    """

    stream: "StreamName"
    summary: str
    metadata: Mapping[str, int | str] | None


def operation_job(
    pipeline: "Pipeline",
    keys: Keys,
    carry_out: Callable[[Any, SparkResource], Iterator[Done]],
    *,
    name: str,
    op_name: str,
    description: str,
    config: type[Config],
    target: "Target | None" = None,
) -> JobDefinition:
    """Return a job that carries out an operation on streams of a pipeline.

    Args:
        pipeline: The pipeline.
        keys: The asset keys of its streams.
        carry_out: The operation: takes the config of the run and the resource `spark`, and yields what is done.
        name: What follows the pipeline in the name of the job, such as `backfill`.
        op_name: What follows it in the name of the op.
        description: A sentence for the UI.
        config: The class of the config.
        target: The target, which the runs are tagged with.
    """

    @op(
        name=f"{pipeline.name}__{op_name}",
        description=description,
        config_schema=config.to_fields_dict(),
    )
    def carry_out_operation(context: OpExecutionContext, spark: SparkResource) -> None:
        with failing():
            for done in carry_out(config(**context.op_config), spark):
                observe(context, keys, done)

    @job(
        # Two underscores: no pipeline, and so no other job, can have this name.
        name=f"{pipeline.name}__{name}",
        description=description,
        executor_def=in_process_executor,
        tags=job_tags(None if target is None else target.name, pipeline.name),
    )
    def operation() -> None:
        carry_out_operation()

    return operation


def observe(context: OpExecutionContext | AssetExecutionContext, keys: Keys, done: Done) -> None:
    """Log what was done to a stream, and record it as an observation of the stream's asset."""
    context.log.info("%s: %s", done.stream, done.summary)
    if done.metadata is not None:
        key = keys.get(done.stream) or AssetKey([done.stream.pipeline, done.stream.stream])
        context.log_event(AssetObservation(key, description=done.summary, metadata=done.metadata))


@contextmanager
def failing() -> Iterator[None]:
    """Fail the op where an error of Tidemill is raised.

    Raises:
        Failure: With the text of the error, which says it all; a stack would bury it.
    """
    try:
        yield
    except TidemillError as error:
        raise Failure(description=str(error), allow_retries=error.transient) from None


def carried_out(
    change: Callable[..., Planned], stream: "StreamName", target: "Target", *, dry_run: bool
) -> Done:
    """Plan a change of a stream, or carry it out as soon as the stream is free; return what the run records of it.

    Args:
        change: The change; takes `dry_run`.
        stream: The stream that it changes.
        target: The target.
        dry_run: Whether it is planned only.

    Raises:
        TidemillError: It is not possible.
    """
    if dry_run:
        plan = change(dry_run=True)
        return Done(stream, " ".join((plan.what, *plan.effects)), None)
    records = StreamRecords(target.lake, stream)
    before = records.operations()
    done = when_free(partial(change, dry_run=False))
    operations = records.operations()
    metadata = metadata_of(operations[-1]) if operations != before else None
    return Done(stream, f"{done.what} {done.outcome}".strip(), metadata)


def when_free(change: Callable[[], T]) -> T:
    """Carry out a change as soon as no run and no other operation holds its stream, and return what it returns.

    Raises:
        LeaseHeldError: The stream is still held after an hour.
    """
    deadline, logged = time.monotonic() + _WAIT_SECONDS, ""
    while True:
        try:
            return change()
        except LeaseHeldError as error:
            if time.monotonic() > deadline:
                raise
            if logged != (logged := str(error)):
                get_dagster_logger("tidemill").info("Waiting: %s", error)
            time.sleep(_POLL_SECONDS)


def metadata_of(operation: "Operation") -> dict[str, int | str]:
    """Return what an observation says about an operation: its numbers, its id and its command."""
    numbers: dict[str, int | str] = {f"tidemill/{name}": value for name, value in operation.result.items()}
    return numbers | {"tidemill/operation": operation.id, "tidemill/command": operation.command}

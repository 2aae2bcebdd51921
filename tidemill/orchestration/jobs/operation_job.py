"""The job of an operation, made from its declaration: one op that does it and records what it did to each stream."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetObservation,
    DefaultScheduleStatus,
    Enum,
    EnumValue,
    Failure,
    Field,
    JobDefinition,
    Noneable,
    OpExecutionContext,
    ScheduleDefinition,
    get_dagster_logger,
    in_process_executor,
    job,
    op,
)

from tidemill.errors import LeaseHeldError, TidemillError
from tidemill.orchestration.automation.run_tags import job_tags
from tidemill.orchestration.spark_resource import SparkResource
from tidemill.records.stream_records import StreamRecords

if TYPE_CHECKING:
    from tidemill.definitions.pipeline import Pipeline
    from tidemill.operations.core.change import Outcome
    from tidemill.operations.core.spec import Argument, OperationSpec
    from tidemill.records.operation import Operation
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName

Keys = Mapping["StreamName", AssetKey]
T = TypeVar("T")
# Nobody is there to repeat the command. Days that are selected with gaps are runs at once, and replay one by one.
_WAIT_SECONDS = 3600.0
_POLL_SECONDS = 2.0
_DAILY = "17 2 * * *"


@dataclass(frozen=True, slots=True)
class Done:
    """What an operation has done to a stream.

    Attributes:
        summary: What was done, in a sentence.
        metadata: Its numbers; None where nothing changed, so that no observation is recorded.
    """

    stream: "StreamName"
    summary: str
    metadata: Mapping[str, int | str] | None


def operation_job(
    spec: "OperationSpec",
    pipeline: "Pipeline",
    keys: Keys,
    *,
    target: "Target | None" = None,
    prefix: str = "",
) -> JobDefinition:
    """Return the job that carries out an operation on streams of a pipeline."""
    resource = f"{prefix}spark"

    @op(
        name=f"{prefix}{pipeline.name}__run_{spec.job_name}",
        description=spec.summary,
        config_schema=config_schema(spec),
        required_resource_keys={resource},
    )
    def carry_out_operation(context: OpExecutionContext) -> None:
        spark: SparkResource = getattr(context.resources, resource)
        with failing():
            for done in carried_out(spec, pipeline, context.op_config, spark):
                observe(context, keys, done)

    @job(
        # Two underscores: no pipeline, and so no other job, can have this name.
        name=f"{prefix}{pipeline.name}__{spec.job_name}",
        description=spec.summary,
        executor_def=in_process_executor,
        tags=job_tags(None if target is None else target.name, pipeline.name),
    )
    def operation() -> None:
        carry_out_operation()

    return operation


def maintenance_schedule(pipeline: "Pipeline", *, prefix: str = "") -> ScheduleDefinition:
    """Return a daily schedule of the maintenance of a pipeline, which is stopped until somebody turns it on."""
    return ScheduleDefinition(
        name=f"{prefix}{pipeline.name}__maintain_daily",
        job_name=f"{prefix}{pipeline.name}__maintain",
        cron_schedule=_DAILY,
        description=f"Maintains the tables of {pipeline.name}.",
        default_status=DefaultScheduleStatus.STOPPED,
    )


def config_schema(spec: "OperationSpec") -> dict[str, Field]:
    """Return the config of an operation's op: the streams, `dry_run`, and the arguments of the operation."""
    fields = {"dry_run": Field(bool, default_value=False, description="Log the plan and change nothing.")}
    text = "The streams, in the words of the command: shop/orders, shop/orders+."
    if spec.one_stream:
        fields["stream"] = Field(str, description="The stream: shop/orders.")
    elif spec.replays:
        fields["selection"] = Field([str], description=text)
    else:
        fields["selection"] = Field([str], default_value=[], description=text)
    return fields | argument_fields(spec)


def argument_fields(spec: "OperationSpec", *, without: tuple[str, ...] = ()) -> dict[str, Field]:
    """Return the config of an operation besides its streams.

    Args:
        without: The arguments that are left out.
    """
    fields = {one.name: _field(one) for one in spec.arguments if one.name not in without}
    if spec.replays:
        text = "Also replay the streams that read the selected ones."
        fields["downstream"] = Field(bool, default_value=False, description=text)
    return fields


def _field(one: "Argument") -> Field:
    """Return an argument of an operation as a field of its config."""
    kind: Any = one.kind if one.kind in (bool, int) else str
    if one.choices:
        kind = Enum(f"{one.name}_choice", [EnumValue(choice) for choice in one.choices])
    if one.required:
        return Field(kind, description=one.help)
    return Field(
        kind if one.default is not None else Noneable(kind), default_value=one.default, description=one.help
    )


def carried_out(
    spec: "OperationSpec", pipeline: "Pipeline", config: Mapping[str, Any], spark: SparkResource
) -> "Iterator[Done]":
    """Carry out an operation on streams in dependency order, and yield what was done to each.

    Args:
        pipeline: The pipeline; readers may be in others.
        config: What was asked for.
        spark: The Spark and the target.

    Raises:
        TidemillError: It is not possible.
    """
    values = spec.values(config, by_flag=False)
    target = spark.resolved_target
    others = [one for one in target.pipelines().pipelines.values() if one.name != pipeline.name]
    work = spec.work(
        target,
        spark.engine,
        [stream for one in (pipeline, *others) for stream in one],
        [config["stream"]] if spec.one_stream else config["selection"] or [pipeline.name],
        downstream=config.get("downstream", False),
        run_id=f"{spec.kind}-{uuid4().hex[:8]}",
    )
    for stream in work.streams:
        change = partial(spec.change, stream, work=work, **values)
        try:
            if config["dry_run"]:
                yield Done(stream.name, change(dry_run=True).plan, None)
                continue
            records = StreamRecords(target.lake, stream.name)
            before = records.operations()
            done: Outcome = when_free(partial(change, dry_run=False))
            operations = records.operations()
        except TidemillError as error:
            raise error.of(stream.name) from error
        metadata: dict[str, int | str] = {f"tidemill/{name}": number for name, number in done.numbers.items()}
        metadata |= metadata_of(operations[-1]) if operations != before else {}
        yield Done(stream.name, done.summary, metadata or None)


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

"""An operation's steps: each can be repeated, and a killed operation continues with the first that is not done."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidemill.errors import LeaseHeldError, TerminalError
from tidemill.records.operation import Operation, unfinished_error
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.waiting import wait_until_free
from tidemill.run.pause_points import pause_point
from tidemill.run.spark.engine import record_jvm, session_of
from tidemill.storage.lake import StagingLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.definitions.stream import Stream
    from tidemill.records.lease import Lease
    from tidemill.records.manifest import Manifest
    from tidemill.run.spark.engine import Engine

COMPUTE = "compute"
"""The step in which an operation computes beside the live stream, before it publishes anything."""
# A run of the live stream that is in progress at the end may be a long catch-up.
_LONGEST_RUN_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an operation.

    Attributes:
        name: Its name, in the record of the operation.
        run: What it does; doing it twice is the same as doing it once.
    """

    name: str
    run: Callable[[], None]


def unfinished(records: StreamRecords, kind: str, arguments: Mapping[str, Any]) -> Operation | None:
    """Return the operation that a command continues; None where it begins a new one.

    Args:
        arguments: What it was asked for.

    Raises:
        LeaseHeldError: Another process is carrying out another operation of the stream.
        TerminalError: Another operation of the stream is unfinished.
    """
    operation = records.operation()
    if operation is None or (operation.kind == kind and dict(operation.arguments) == dict(arguments)):
        return operation
    _check_not_in_progress(records, operation)
    if not operation.publishing:  # it has changed nothing, and what it left behind is pruned
        return None
    raise unfinished_error(operation, records.stream)


def _check_not_in_progress(records: StreamRecords, operation: Operation) -> None:
    """Check that no other process is carrying out an operation."""
    holder = records.operation_holder()
    if holder is None and operation.publishing:  # under the stream's lease, which the caller may hold itself
        live = records.holder()
        holder = None if live is None or live.is_this_process else live
    if holder is not None:
        raise LeaseHeldError(
            f"its {operation.kind} of {holder} is in progress.",
            stream=records.stream,
            fix="wait for it to end, or stop it first.",
        )


def existing_manifest(records: StreamRecords) -> "Manifest":
    """Return the manifest of a stream that has run.

    Raises:
        TerminalError: It is missing.
    """
    manifest = records.manifest()
    if manifest is None:
        raise TerminalError(
            "its manifest is missing.",
            stream=records.stream,
            fix="restore it from a backup.",
            code="manifest-missing",
        )
    return manifest


@contextmanager
def exclusive_operation(records: StreamRecords, operation: Operation) -> Iterator[Operation]:
    """Exclude every other operation that computes beside a stream; yield the operation as it is then.

    Raises:
        LeaseHeldError: Another process carries one out.
        TerminalError: Another operation of the stream is unfinished.
    """
    lease = records.take_operation_lease(operation.id)
    try:
        current = records.operation()
        if current is not None and current.id != operation.id and current.publishing:
            raise unfinished_error(current, records.stream)
        # Another process may have continued it since it was read.
        is_current = current is not None and current.id == operation.id
        yield (current if is_current else records.ended_operation(operation.id)) or operation
    finally:
        lease.release()


def staging_records(
    records: StreamRecords, operation: Operation, *, own_checkpoint: bool = False
) -> StreamRecords:
    """Return the records of what an operation computes before it publishes.

    Args:
        own_checkpoint: Whether its checkpoint is in the staging folder, because no run continues it.
    """
    staging = records.lake.store.below(f"{records.lake.staging(records.stream)}/{operation.id}")
    checkpoints = staging if own_checkpoint else records.lake.store
    return StreamRecords(StagingLake(staging, checkpoints, access=records.lake.access), records.stream)


def staging_missing(records: StreamRecords, operation: Operation, folder: object) -> TerminalError:
    """Return the error that what an operation has computed, and not yet published, is missing."""
    return TerminalError(
        f"the staging folder {folder} of its {operation.kind} {operation.id} is missing.",
        stream=records.stream,
        lost="The rows that were computed are in this folder, and not yet in all tables.",
        fix="restore the folder from a backup, and run the command again.",
        code="staging-missing",
    )


def ensure_computed(
    records: StreamRecords, operation: Operation, compute: Callable[[], Mapping[str, Any]]
) -> Operation:
    """Compute what an operation publishes, unless that is done; return the operation as it is then.

    Args:
        compute: Computes, as often as it is called, and returns the result to record.

    Raises:
        TerminalError: Another command has changed the stream meanwhile.
    """
    if operation.publishing or COMPUTE in operation.done:
        return operation
    records.write_operation(operation)
    result = compute()
    check_current(records, operation)
    operation = replace(operation, result=result).with_step(COMPUTE)
    records.write_operation(operation)
    return operation


def check_current(records: StreamRecords, operation: Operation) -> None:
    """Check that no other command has changed a stream since an operation began.

    Raises:
        TerminalError: One has.
    """
    current = records.operation()
    if current is None or current.id != operation.id:
        raise TerminalError(
            f"another command has changed it since the {operation.kind} began.",
            stream=records.stream,
            fix=f"start over: {operation.command}",
            code="changed-meanwhile",
        )


def execute_steps(
    records: StreamRecords, operation: Operation, steps: Sequence[Step], lease: "Lease"
) -> Operation:
    """Carry out the steps of an operation that are not done, each under the lease; return it as it is then.

    Args:
        steps: All its steps, in order.

    Raises:
        TerminalError: Another operation of the stream is unfinished.
    """
    current = records.operation()
    if current is not None and current.id != operation.id and current.publishing:
        raise unfinished_error(current, records.stream)
    records.write_operation(operation := replace(operation, publishing=True))
    pause_point(f"{operation.kind}-begin", records.stream)
    for step in steps:
        if step.name not in operation.done:
            lease.check()
            step.run()
            pause_point(f"{operation.kind}-{step.name}", records.stream)
            records.write_operation(operation := operation.with_step(step.name))
    return records.end_operation(operation)


def leased(records: StreamRecords, reason: str, *, dry_run: bool) -> "AbstractContextManager[Lease | None]":
    """Hold a stream's lease; None for a plan, which needs none.

    Raises:
        LeaseHeldError: A run holds it.
    """
    return nullcontext() if dry_run else holding(records, run_id_of(reason))


def run_id_of(kind: str) -> str:
    """Return the id under which an operation without a record of its own holds a lease."""
    return f"{kind}-{datetime.now(UTC):%Y%m%dT%H%M%S}"


@contextmanager
def holding(records: StreamRecords, run_id: str) -> "Iterator[Lease]":
    """Hold a stream's lease.

    Raises:
        LeaseHeldError: A run holds it.
    """
    lease = records.take_lease(run_id)
    try:
        yield lease
    finally:
        lease.release()


def holding_when_free(
    stream: "Stream", records: StreamRecords, run_id: str
) -> "AbstractContextManager[Lease]":
    """Wait until no run holds a stream, then hold its lease.

    Raises:
        LeaseHeldError: A run holds it after an hour still.
    """
    wait_until_free([stream], records.lake, seconds=_LONGEST_RUN_SECONDS, on_wait=lambda *_: None)
    return holding(records, run_id)


@contextmanager
def session(engine: "Engine", lease: "Lease | None") -> "Iterator[SparkSession]":
    """Yield a session for an operation: Spark's 200 partitions cost more than the rows of its commits.

    Args:
        lease: The lease that the operation writes under, which then shows whether its commits have ended, too; None
            where it only reads.
    """
    with session_of(engine, {"spark.sql.shuffle.partitions": str(engine.default_partitions())}) as spark:
        if lease is not None:
            record_jvm(lease, engine, spark)
        yield spark

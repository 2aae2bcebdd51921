"""StreamRecords: the one owner of what is recorded about a stream.

The active checkpoint and its tail, the newest batch in a sink, the next watermark, the lease, the ledger and the
pins are asked for here and computed nowhere else.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar, overload

from tidemill.checkpoint import Tail, read_tail_or_empty
from tidemill.checkpoint.format.folder import Folder
from tidemill.checkpoint.write import CheckpointWriter
from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.sink import SinkContext, transaction_app_id
from tidemill.records.batch import BatchCounts, read_counts, remove_counts, write_counts
from tidemill.records.check_state import Checked, Position, read_checked, write_checked
from tidemill.records.lease import Holder, Lease, assert_highest, holder_of, take
from tidemill.records.ledger import Ledger
from tidemill.records.manifest import Manifest, read_manifest, write_manifest
from tidemill.records.operation import Operation, read_operation, write_operation
from tidemill.records.registrations import Registrations, read_registrations, write_registrations
from tidemill.storage.lake import Lake
from tidemill.storage.log_end import log_end
from tidemill.storage.probe import require_probed
from tidemill.storage.store import Store
from tidemill.storage.table_ref import TableRef
from tidemill.text.names import MAIN_SINK, StreamName

Owner = TypeVar("Owner")
Value = TypeVar("Value")


class lazy(Generic[Owner, Value]):  # noqa: N801 - a decorator
    """`functools.cached_property` without its lock.

    In Python 3.11 one lock serves all instances of a class, so the threads of a tick would wait for each other.
    Two threads that read the same instance may both compute the value.
    """

    def __init__(self, compute: Callable[[Owner], Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        """Keep the name under which an instance stores the value."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "lazy[Owner, Value]": ...
    @overload
    def __get__(self, instance: Owner, owner: type) -> Value: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        """Return the value, and store it in the instance, where Python finds it before it asks again."""
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


_PINS = "pins.json"


@dataclass(frozen=True, slots=True)
class Pins:
    """Pinned versions.

    Attributes:
        first_batch: The first batch that uses them.
        versions: The Delta version of each static reading, by source name.
    """

    first_batch: int
    versions: dict[str, int]


FIRST_GENERATION = 1
_LEASE, _OPERATION_LEASE = "lease", "operation-lease"
_OPERATION, _ENDED = "operation.json", "operations"


@dataclass(frozen=True, slots=True)
class SinkTable:
    """A table of a stream.

    Attributes:
        table_id: Its id; a table that was recreated has another one.
        version: Its newest version.
        newest_batch: The newest batch of the query that it has; -1 where it has none.
    """

    table: TableRef
    table_id: str
    version: int
    newest_batch: int

    def has(self, batch_id: int) -> bool:
        """Return whether it has a batch of the query."""
        return self.newest_batch >= batch_id


@dataclass(frozen=True)
class Snapshot:
    """The records of a stream at one moment.

    Attributes:
        records: Where they were read from.
        manifest: The manifest; None for a stream that has never run.
        checkpoint: The files of the active checkpoint.
        folder: The same files as they were at that moment, for reading.
        tail: The end of that checkpoint; an empty one where there is none yet.
    """

    records: "StreamRecords"
    manifest: Manifest | None
    checkpoint: Store
    folder: Folder
    tail: Tail

    @property
    def generation(self) -> int:
        """The number of the active generation."""
        return FIRST_GENERATION if self.manifest is None else self.manifest.active.number

    @property
    def sources(self) -> Mapping[str, SourceRecord]:
        """What the manifest records about the sources, by name."""
        return {} if self.manifest is None else self.manifest.active.sources

    @property
    def query_id(self) -> str | None:
        """Spark's query id as the manifest has it; None before the first query."""
        return None if self.manifest is None else self.manifest.active.query_id

    def has(self, position: Position) -> bool:
        """Return whether this is the checkpoint in which the checks were at a position."""
        return (position.generation, position.query_id) == (self.generation, self.query_id)

    @property
    def last_commit(self) -> int:
        """The last committed batch; -1 before the first."""
        return -1 if self.tail.latest_commit is None else self.tail.latest_commit.batch_id

    @property
    def next_batch(self) -> int:
        """The batch after the last one that was planned."""
        return 0 if self.tail.latest_offset is None else self.tail.latest_offset.batch_id + 1

    @property
    def next_watermark_ms(self) -> int | None:
        """The watermark of the next batch, milliseconds since the epoch; None without one."""
        return self.tail.next_watermark_ms

    def writer(self, reason: str = "repair") -> CheckpointWriter:
        """Return the writer of the active checkpoint; the stream's lease must be held.

        Args:
            reason: The reason, in one word; part of the name of the folder with the copies.
        """
        return CheckpointWriter(self.checkpoint, self.records.control, reason)

    @lazy
    def main_table(self) -> SinkTable | None:
        """Return the main table; None where there is none yet."""
        return self.records.sink_table(self.tail.query_id)

    @property
    def main_batch(self) -> int | None:
        """The newest batch that the main table has, or that had nothing to write; None where there is no table."""
        table = self.main_table
        return None if table is None else self.records.newest_batch(table, self.tail, self.generation)

    @property
    def ledger_is_behind(self) -> bool:
        """Whether committed batches have no line in the ledger."""
        return self.manifest is not None and self.last_commit > self.manifest.active.ledger_batch


@dataclass(frozen=True, slots=True)
class StreamRecords:
    """The records of one stream in one lake. Every call reads the files again."""

    lake: Lake
    stream: StreamName

    def snapshot(self) -> Snapshot:
        """Return the manifest, the active checkpoint and its tail.

        Raises:
            CheckpointError: The manifest, or a file at the tail, is damaged.
        """
        manifest = self.manifest()
        generation = FIRST_GENERATION if manifest is None else manifest.active.number
        checkpoint = self.checkpoint(generation)
        folder = Folder.at(checkpoint)
        return Snapshot(self, manifest, checkpoint, folder, read_tail_or_empty(folder))

    def manifest(self) -> Manifest | None:
        """Return the manifest; None for a stream that has never run."""
        return read_manifest(self.control, self.stream)

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest atomically."""
        write_manifest(self.control, manifest)

    def checkpoint(self, generation: int) -> Store:
        """Return the files of the checkpoint of a generation."""
        return self.lake.checkpoint(self.stream, generation)

    def table(self, sink: str = MAIN_SINK) -> TableRef:
        """Return the folder of a sink's table."""
        return self.lake.table(self.stream, sink)

    def sink_context(self, sink: str, connection: Any = None) -> SinkContext:
        """Return where a sink writes.

        Args:
            connection: What the sink needs of the target.
        """
        return SinkContext(self.table(sink), connection)

    def sink_table(self, query_id: str | None, sink: str = MAIN_SINK) -> SinkTable | None:
        """Return a sink's table and the newest batch of a query in it; None where there is no table.

        Args:
            query_id: Spark's query id; None where the stream has none yet.
        """
        path = self.table(sink)
        app_id = None if query_id is None else transaction_app_id(query_id, sink)
        if (end := log_end(path.log)) is not None:
            newest = None if app_id is None else end.transactions.get(app_id)
            table_id, version = end.table_id, end.version
        elif (table := path.open()) is not None:
            newest = None if app_id is None else table.transaction_version(app_id)
            table_id, version = str(table.metadata().id), table.version()
        else:
            return None
        return SinkTable(path, table_id, version, newest_batch=-1 if newest is None else newest)

    def newest_batch(self, main: SinkTable, tail: Tail, generation: int) -> int:
        """Return the newest batch that the main table has, or that followed and had nothing to write.

        Args:
            main: The main table.
            tail: The end of the checkpoint.
            generation: The generation whose checkpoint it is.
        """
        if tail.query_id is None or tail.latest_commit is None:
            return main.newest_batch
        last = tail.latest_commit.batch_id
        if main.newest_batch >= last:
            return main.newest_batch
        counts = self.counts(generation, last, tail.query_id)
        follows = None if counts is None else counts.follows
        return last if follows is not None and follows == main.newest_batch else main.newest_batch

    @property
    def control(self) -> Store:
        """The control files."""
        return self.lake.records(self.stream)

    @property
    def ledger(self) -> Ledger:
        """The stream's ledger."""
        return Ledger(self.lake.ledger(self.stream), self.stream)

    def pins(self) -> Pins | None:
        """Return the pinned versions of the last run; None where there are none."""
        try:
            return Pins(**json.loads(self.control.read(_PINS)))
        except FileNotFoundError:
            return None

    def write_pins(self, pins: Pins) -> None:
        """Write the pinned versions of this run."""
        self.control.replace(_PINS, json.dumps(asdict(pins)).encode())

    def counts(self, generation: int, batch_id: int, query_id: str) -> BatchCounts | None:
        """Return what a batch has counted; None where they are not recorded, or no longer."""
        return read_counts(self.control, generation, batch_id, query_id)

    def add_counts(self, generation: int, batch_id: int, counts: BatchCounts) -> None:
        """Write what a batch has counted, unless the attempt that committed it has written them."""
        if self.counts(generation, batch_id, counts.query_id) is None:
            write_counts(self.control, generation, batch_id, counts)

    def remove_counts(self, generation: int, *, last: int) -> None:
        """Remove the counts of earlier generations, and of batches up to one: their lines in the ledger have them."""
        remove_counts(self.control, generation, last=last)

    def checked(self) -> Checked | None:
        """Return what the checks have recorded; None where there is nothing."""
        return read_checked(self.control)

    def write_checked(self, checked: Checked) -> None:
        """Write what the checks have recorded."""
        write_checked(self.control, checked)

    def registrations(self) -> Registrations:
        """Return what a catalog said about the tables; nothing where no run has asked one."""
        return read_registrations(self.control)

    def write_registrations(self, registrations: Registrations) -> None:
        """Write what a catalog said about the tables."""
        write_registrations(self.control, registrations)

    def operation(self) -> Operation | None:
        """Return the unfinished operation; None where there is none.

        Raises:
            CheckpointError: Its record is damaged.
        """
        return read_operation(self.control, _OPERATION, self.stream)

    def write_operation(self, operation: Operation) -> None:
        """Write the record of the unfinished operation."""
        write_operation(self.control, _OPERATION, operation)

    def end_operation(self, operation: Operation) -> Operation:
        """Move the record of an operation to those of the finished ones; return it as it is there."""
        ended = operation.ended()
        write_operation(self.control, _ended(operation.id), ended)
        self.control.delete([_OPERATION])
        return ended

    def drop_operation(self) -> None:
        """Remove the record of an operation that was given up before it changed anything."""
        self.control.delete([_OPERATION])

    def ended_operation(self, operation_id: str) -> Operation | None:
        """Return a finished operation; None where there is none of this id."""
        return read_operation(self.control, _ended(operation_id), self.stream)

    def operations(self) -> list[Operation]:
        """Return the finished operations, oldest first."""
        keys = (entry.key for entry in self.control.list(_ENDED) if entry.name.endswith(".json"))
        operations = (read_operation(self.control, key, self.stream) for key in keys)
        return sorted(
            (operation for operation in operations if operation), key=lambda one: one.ended_at or ""
        )

    def take_lease(self, run_id: str) -> Lease:
        """Take the stream's lease.

        Raises:
            LeaseHeldError: Another run holds it.
            ConfigurationError: The lake cannot be written.
        """
        return self._take(_LEASE, run_id)

    def holder(self) -> Holder | None:
        """Return the holder of the stream's lease; None when it is free."""
        return holder_of(self.control.below(_LEASE))

    def assert_lease(self, epoch: int) -> None:
        """Raise LeaseLostError unless an epoch of the lease is the highest."""
        assert_highest(self.control.below(_LEASE), self.stream, epoch)

    def take_operation_lease(self, run_id: str) -> Lease:
        """Take the lease of the operations that compute beside the stream: there is one at a time.

        Raises:
            LeaseHeldError: Another process carries one out.
            ConfigurationError: The lake cannot be written.
        """
        return self._take(_OPERATION_LEASE, run_id)

    def _take(self, folder: str, run_id: str) -> Lease:
        require_probed(self.lake.store)
        return take(self.control.below(folder), self.stream, run_id)

    def operation_holder(self) -> Holder | None:
        """Return who carries out an operation beside the stream; None when nobody does."""
        return holder_of(self.control.below(_OPERATION_LEASE))


def _ended(operation_id: str) -> str:
    return f"{_ENDED}/{operation_id}.json"

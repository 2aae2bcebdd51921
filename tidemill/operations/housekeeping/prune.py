"""What earlier lives and operations of a stream have left behind, and its removal past an age.

- `checkpoint`: the checkpoint of a generation that ended, with its state and the logs of the files that it has read; or
  of one that never began, because the operation was given up.
- `table`: the copy of an earlier generation's table that a rebuild was asked to keep.
- `staging`: what an operation computed. An operation that is not finished keeps its own, unless it has changed nothing
  and began before that age: it was given up, and its record is removed as well.
- `copies`: files of checkpoints that were replaced by a repair or an edit.
- `tombstones`: the keys of deleted rows in a merge table, where their sequence or validity is a time.

The active generation is never touched.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from tidemill.checkpoint.write import COPIES
from tidemill.errors import LeaseHeldError
from tidemill.operations.core.change import Outcome
from tidemill.operations.core.spec import Argument, OperationSpec
from tidemill.operations.core.steps import Step, execute_steps, holding, run_id_of, session, unfinished
from tidemill.operations.housekeeping.tombstones import condition_of, count_of, delete
from tidemill.records.operation import Operation, unfinished_error
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.preconditions import check_records
from tidemill.storage.store import Entry
from tidemill.text.durations import flag_duration
from tidemill.text.plurals import pluralize
from tidemill.text.report import Column, Report, megabytes, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidemill.definitions.sink import TableSink
    from tidemill.definitions.stream import Stream
    from tidemill.records.lease import Lease
    from tidemill.records.manifest import Manifest
    from tidemill.run.spark.engine import Engine
    from tidemill.target.target import Target

OLDER_THAN = timedelta(days=30)
"""The age from which something is pruned, unless another one is named."""

KIND = "prune"
Kind = Literal["checkpoint", "table", "staging", "copies", "tombstones"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something that can be removed.

    Attributes:
        kind: What it is.
        path: The address of its file or folder; of tombstones that of their table.
        keys: The keys of its files; none of tombstones.
        what: A description, for people.
        bytes: Its size; 0 for tombstones, whose table becomes smaller with its next maintenance.
        rows: The number of tombstones; None for files.
        sink: The sink whose table has the tombstones; None for files.
    """

    kind: Kind
    path: str
    what: str
    keys: tuple[str, ...] = ()
    bytes: int = 0
    rows: int | None = None
    sink: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning(Outcome):
    """What pruning would remove of a stream, or has removed.

    Attributes:
        outcome: `planned`, `pruned`, `idle` where nothing was to remove, or `busy` where a run holds the lease.
        leftovers: What is removed.
        reason: Why it is busy.
    """

    outcome: Literal["planned", "pruned", "idle", "busy"]
    leftovers: tuple[Leftover, ...] = ()
    reason: str = ""

    @property
    def changes(self) -> bool:
        """Whether there is something to remove."""
        return bool(self.leftovers)

    @property
    def bytes(self) -> int:
        """The bytes of the files."""
        return sum(leftover.bytes for leftover in self.leftovers)

    @property
    def summary(self) -> str:
        """What was removed, or why it is busy."""
        leftovers = "; ".join(leftover.what for leftover in self.leftovers)
        return f"{self.outcome} {self.reason or leftovers}".strip()

    @property
    def numbers(self) -> "Mapping[str, int]":
        """What was removed, in numbers."""
        if self.outcome != "pruned":
            return {}
        return {"removed_leftovers": len(self.leftovers), "removed_bytes": self.bytes}


def prune(
    stream: "Stream",
    target: "Target",
    engine: "Engine",
    *,
    older_than: timedelta = OLDER_THAN,
    dry_run: bool = False,
) -> Pruning:
    """Remove what earlier generations and operations of a stream have left behind.

    A change that is older than a tombstone and arrives after it was removed brings its row back, so the age must be
    longer than any change is late.

    Args:
        engine: Where Spark sessions come from; asked for tombstones only.
        older_than: The age.
        dry_run: Whether it is planned only, which needs neither a lease nor Spark.

    Raises:
        TerminalError: An operation of the stream is unfinished.
    """
    records = StreamRecords(target.lake, stream.name)
    manifest = records.manifest()
    if manifest is None:
        return Pruning(stream=stream.name, outcome="idle")
    before = datetime.now(UTC) - older_than
    pruning = _Pruning(stream, records, engine, before)
    if dry_run:
        return Pruning(stream=stream.name, outcome="planned", leftovers=tuple(pruning.leftovers(manifest)))
    try:
        with holding(records, run_id_of(KIND)) as lease:
            operation = records.operation()
            if operation is not None and operation.publishing and operation.kind != KIND:
                raise unfinished_error(operation, stream.name)
            leftovers = tuple(pruning.leftovers(manifest))
            pruning.remove(leftovers, lease)
            return Pruning(stream=stream.name, outcome="pruned" if leftovers else "idle", leftovers=leftovers)
    except LeaseHeldError as error:
        return Pruning(stream=stream.name, outcome="busy", reason=error.what)


@dataclass(frozen=True, slots=True)
class _Pruning:
    """The pruning of one stream."""

    stream: "Stream"
    records: StreamRecords
    engine: "Engine"
    before: datetime

    def leftovers(self, manifest: "Manifest") -> Iterator[Leftover]:
        """Yield what can be removed."""
        lake = self.records.lake
        yield from self._generations(manifest)
        if self._operation() is None:
            yield from self._never_begun(manifest)
            yield from self._old("staging", lake.staging(self.stream.name), "computed by")
        yield from self._old(
            "copies", f"control/{self.stream.name.pipeline}/{self.stream.name.stream}/{COPIES}", "replaced by"
        )
        yield from self._tombstones()

    def remove(self, leftovers: tuple[Leftover, ...], lease: "Lease") -> None:
        """Remove files first, and tombstones in a transaction per table."""
        if self._operation() is None and self.records.operation() is not None:
            self.records.drop_operation()
        for leftover in leftovers:
            lease.check()
            self.records.lake.store.delete(leftover.keys)
        sinks = [leftover.sink for leftover in leftovers if leftover.sink is not None]
        operation = unfinished(self.records, KIND, {})
        if operation is None and sinks:
            check_records(self.stream, self.records.snapshot())
            operation = PRUNE.begin(self.stream.name, {}, {"sinks": sinks, "before": self.before.isoformat()})
        if operation is not None:
            moment = datetime.fromisoformat(operation.decided["before"])
            steps = [
                Step(f"tombstones-{sink.name}", partial(self._delete, lease, sink, moment, operation.id))
                for sink in self._merges()
                if sink.name in operation.decided["sinks"]
            ]
            execute_steps(self.records, operation, steps, lease)

    def _delete(self, lease: "Lease", sink: "TableSink", moment: datetime, operation: str) -> None:
        with session(self.engine, lease) as spark:
            delete(spark, self.records.table(sink.name), sink, moment, operation)

    def _merges(self) -> "list[TableSink]":
        return [sink for sink in self.stream.tables if sink.tombstone_times]

    def _operation(self) -> Operation | None:
        """Return the unfinished operation, other than one that was given up."""
        operation = self.records.operation()
        if operation is None or operation.publishing:
            return operation
        is_old = datetime.fromisoformat(operation.began_at) < self.before
        return None if is_old and self.records.operation_holder() is None else operation

    def _never_begun(self, manifest: "Manifest") -> Iterator[Leftover]:
        lake = self.records.lake
        for entry in lake.store.list(lake.checkpoints(self.stream.name)):
            number = int(entry.name) if entry.name.isdigit() else 0
            if number > manifest.active.number:
                yield from self._if_old("checkpoint", entry, f"generation {number}, which never began")

    def _generations(self, manifest: "Manifest") -> Iterator[Leftover]:
        lake, main = self.records.lake, self.records.table()
        checkpoints = lake.store.list(lake.checkpoints(self.stream.name))
        tables = lake.store.list(main.key.rpartition("/")[0])
        for ended, following in zip(manifest.generations, manifest.generations[1:], strict=False):
            if datetime.fromisoformat(following.began_at) >= self.before:
                continue
            what = f"generation {ended.number}, which ended at {following.began_at} ({following.why})"
            for entry in checkpoints:
                if entry.name == str(ended.number):
                    yield self._leftover("checkpoint", entry, what)
            for entry in tables:
                if entry.name.startswith(f"{main.name}__") and entry.name.endswith(
                    f"generation_{ended.number}"
                ):
                    yield self._leftover("table", entry, what)

    def _old(self, kind: Kind, folder: str, by: str) -> Iterator[Leftover]:
        for entry in self.records.lake.store.list(folder):
            yield from self._if_old(kind, entry, f"{by} {entry.name}")

    def _if_old(self, kind: Kind, entry: Entry, what: str) -> Iterator[Leftover]:
        newest = max((file.modified for file in self._files(entry)), default=None)
        if newest is not None and newest < self.before.timestamp():
            yield self._leftover(kind, entry, what)

    def _leftover(self, kind: Kind, entry: Entry, what: str) -> Leftover:
        files = self._files(entry)
        return Leftover(
            kind=kind,
            path=self.records.lake.store.uri(entry.key),
            what=what,
            keys=tuple(file.key for file in files),
            bytes=sum(file.size for file in files),
        )

    def _files(self, entry: Entry) -> "Sequence[Entry]":
        return self.records.lake.store.walk(entry.key) if entry.is_folder else (entry,)

    def _tombstones(self) -> Iterator[Leftover]:
        for sink in self._merges():
            path = self.records.table(sink.name)
            table = path.open()
            condition = None if table is None else condition_of(table, sink, self.before)
            rows = 0 if table is None or condition is None else count_of(path.dataset(table), condition)
            if rows:
                what = f"{pluralize(rows, 'tombstone')} of deletes before {self.before.isoformat(timespec='seconds')}"
                yield Leftover(kind="tombstones", path=path.uri, what=what, rows=rows, sink=sink.name)


_COLUMNS = (
    Column("Stream", "stream", whole=True),
    Column("Kind", "kind", whole=True),
    Column("MB", lambda row: megabytes(row["bytes"]) if row["rows"] is None else "", right=True),
    Column("What", "what"),
)


def _item(pruning: Pruning) -> dict[str, Any]:
    return {
        "stream": str(pruning.stream),
        "outcome": pruning.outcome,
        "reason": pruning.reason,
        "bytes": pruning.bytes,
        "leftovers": [
            {
                "kind": leftover.kind,
                "path": leftover.path,
                "what": leftover.what,
                "bytes": leftover.bytes,
                "rows": leftover.rows,
            }
            for leftover in pruning.leftovers
        ],
    }


def _report(prunings: "Sequence[Pruning]", *, changed: bool) -> Report:
    items = list(map(_item, prunings))
    rows = rows_of(items, "leftovers")
    if changed:
        removed = sum(pruning.bytes for pruning in prunings if pruning.outcome == "pruned")
        return Report(items=items, lines=(f"Done: {megabytes(removed)} MB removed.",))
    if not rows:
        return Report(items=items, lines=("There is nothing to remove.",))
    return Report(items=items, columns=_COLUMNS, rows=rows)


PRUNE = OperationSpec(
    kind=KIND,
    summary="Remove checkpoints of old generations, staging folders, copies of replaced files, and tombstones.",
    description="A stream that a run holds is busy, which is not a failure. Spark starts only to remove tombstones.",
    apply=prune,
    arguments=(
        Argument(
            name="older_than",
            help="Remove what is older than this: 30d, 12h.",
            default="30d",
            metavar="DURATION",
            read=flag_duration,
        ),
    ),
    report=_report,
)

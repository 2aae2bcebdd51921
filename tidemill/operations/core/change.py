"""Change: what a command would change, or has changed, about a stream."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemill.errors import TerminalError
from tidemill.operations.core.steps import existing_manifest, leased
from tidemill.records.manifest import Manifest
from tidemill.records.operation import unfinished_error
from tidemill.records.stream_records import Snapshot, StreamRecords
from tidemill.text.report import Report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidemill.checkpoint.write import CheckpointWriter
    from tidemill.connectors.source_record import SourceRecord
    from tidemill.definitions.stream import Stream
    from tidemill.records.lease import Lease
    from tidemill.records.operation import Operation
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an operation would do to a stream, or has done.

    Attributes:
        outcome: What was done; empty where the plan says it all.
    """

    stream: "StreamName"
    outcome: str = ""

    @property
    def changes(self) -> bool:
        """Whether there is something to do: a change that makes no sense is an error."""
        return True

    @property
    def summary(self) -> str:
        """What was done, in sentences."""
        return self.outcome

    @property
    def plan(self) -> str:
        """What would be done, in sentences."""
        return self.summary

    @property
    def numbers(self) -> "Mapping[str, int]":
        """What was done, in numbers; empty where the record of the operation has them, or nothing was done."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Outcome):
    """A change of a stream.

    Attributes:
        what: The change, in one sentence.
        effects: What follows from it, one sentence each.
        copies: The folder with copies of the files that were replaced; None where none was.
    """

    what: str
    effects: tuple[str, ...] = ()
    copies: str | None = None

    @property
    def plan(self) -> str:
        """The change and what follows from it."""
        return " ".join((self.what, *self.effects))

    @property
    def summary(self) -> str:
        """What was done."""
        copies = f"Copies of what was replaced: {self.copies}" if self.copies else ""
        return " ".join(filter(None, (self.what, self.outcome, copies)))

    @property
    def item(self) -> dict[str, Any]:
        """The change as JSON."""
        return {
            "stream": str(self.stream),
            "what": self.what,
            "effects": list(self.effects),
            "copies": self.copies,
            "outcome": self.outcome or None,
        }


def report_changes(changes: "Sequence[Change]", *, changed: bool) -> Report:
    """Return changes as a report: of each plan its sentences.

    Args:
        changes: The plans, or what was done.
        changed: Whether they were made.
    """
    plans = []
    for change in changes:
        plans.append(f"{change.stream}: {change.what}")
        plans += [f"  - {sentence}" for sentence in (*change.effects, change.outcome) if sentence]
    return Report(items=[change.item for change in changes], lines=["Done."] if changed else plans)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamUnderChange:
    """A stream that is about to be changed.

    Attributes:
        edits: Where edits of its checkpoint go.
        lease: The held lease; None for a plan.
    """

    stream: "Stream"
    snapshot: Snapshot
    manifest: Manifest
    writer: "CheckpointWriter"
    lease: "Lease | None"

    @property
    def sources(self) -> "Mapping[str, SourceRecord]":
        """The records of the sources, by name."""
        return self.manifest.active.sources

    @property
    def copies(self) -> str | None:
        """The folder with copies of what was replaced; None where nothing was."""
        copies = self.writer.copies
        return None if copies is None else copies.uri()

    def record(self, sources: "Mapping[str, SourceRecord]") -> None:
        """Write the records of the sources into the manifest."""
        self.snapshot.records.write_manifest(self.manifest.with_active(sources=dict(sources)))

    def refuse(self, what: str, fix: str, *, code: str) -> TerminalError:
        """Return the error that the change is not possible."""
        return refusal(self.stream, what, fix, code=code)


def refusal(stream: "Stream", what: str, fix: str, *, code: str) -> TerminalError:
    """Return the error that a change of a stream is not possible."""
    return TerminalError(what, stream=stream.name, fix=fix, code=code)


def never_run(stream: "Stream", what: str) -> TerminalError:
    """Return the error that a stream must run before it can be changed."""
    return refusal(stream, what, f"tidemill run {stream.name}", code="stream-never-run")


@contextmanager
def changing(
    stream: "Stream", target: "Target", reason: str, *, dry_run: bool
) -> Iterator[StreamUnderChange]:
    """Hold a stream's lease while it is changed.

    Args:
        reason: The command, for the lease and for the copies.
        dry_run: Whether the change is planned only, which needs no lease.

    Raises:
        TerminalError: The stream has never run.
        LeaseHeldError: A run holds the lease.
    """
    records = StreamRecords(target.lake, stream.name)
    if records.manifest() is None:
        raise never_run(stream, "it has never run, so there is nothing to change.")
    with leased(records, reason, dry_run=dry_run) as lease:
        snapshot = records.snapshot()
        if (operation := records.operation()) is not None and operation.publishing:
            raise unfinished_error(operation, stream.name)
        yield StreamUnderChange(
            stream=stream,
            snapshot=snapshot,
            manifest=existing_manifest(records),
            writer=snapshot.writer(reason),
            lease=lease,
        )


def refusing_readers(stream: "Stream", readers: "Sequence[Stream]", *, again: str) -> tuple[str, ...]:
    """Return a sentence for each stream that will refuse a commit that replaces rows of a table.

    Args:
        stream: The stream whose table it is.
        readers: The streams that may read it.
        again: How a reader is computed again, as the beginning of a sentence.
    """
    return tuple(
        f"{reader.name} reads new rows of the table: its next run refuses the commit. {again} it as well "
        "(--downstream), or keep what it has (tidemill accept)."
        for reader in readers
        if stream.name in reader.upstreams
    )


def began(operation: "Operation") -> tuple[str, ...]:
    """Return how far an operation is; empty for one that has done nothing."""
    if not (operation.done or operation.publishing):
        return ()
    done = ", ".join(operation.done) or "nothing"
    return (f"The operation began at {operation.began_at}; done: {done}.",)

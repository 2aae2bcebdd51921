"""A source that has another name now: its position in the checkpoint, its log and its record get the new name.

The same command continues a source that was removed in an earlier run, from where the stream stopped reading it.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from tidemill.checkpoint.format.offsets import Offsets
from tidemill.connectors.source_record import SourceRecord
from tidemill.operations.core.change import Change, StreamUnderChange, changing
from tidemill.operations.core.spec import Argument, OperationSpec
from tidemill.run.decide.sources import streaming_sources

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.target.target import Target


def rename_source(stream: "Stream", target: "Target", old: str, new: str, *, dry_run: bool = False) -> Change:
    """Let a source continue where a source of another name, or the same one before it was removed, stopped.

    Args:
        stream: The stream, as it is defined now.
        old: The name in the checkpoint or in the manifest.
        new: The name in the definition.

    Raises:
        TerminalError: The names do not fit the definition or the checkpoint.
        LeaseHeldError: A run holds the stream's lease.
    """
    with changing(stream, target, "rename-source", dry_run=dry_run) as subject:
        entry = subject.snapshot.tail.latest_offset
        offsets = {} if entry is None else entry.offsets
        position = _position(subject, offsets, old, new)
        removed = subject.sources.get(old, SourceRecord()).stopped_at is not None
        batch = "no batch" if entry is None else f"batch {entry.batch_id}"
        what = (
            f"The source {new!r} continues where the stream stopped reading {old!r}: {position}."
            if removed
            else f"The source {old!r} is called {new!r} from now on."
        )
        effects = (
            f"The offsets up to {batch} are rewritten.",
            f"The record of {old!r} (binding, accepted versions) becomes that of {new!r}.",
        )
        if not dry_run:
            _apply(subject, old, new, position, offsets, removed=removed)
        return Change(stream=stream.name, what=what, effects=effects, copies=subject.copies)


def _position(subject: StreamUnderChange, offsets: Offsets, old: str, new: str) -> str | None:
    """Return the offset of the old name."""
    declared = streaming_sources(subject.stream)
    if new not in declared:
        raise subject.refuse(
            f"its definition has no streaming source {new!r}.",
            f"name one of {', '.join(declared)}.",
            code="source-not-declared",
        )
    if old in declared and old != new:
        raise subject.refuse(
            f"its definition still has the source {old!r}.",
            "rename the argument of the function first.",
            code="source-still-declared",
        )
    recorded = subject.sources.get(old, SourceRecord())
    # A command that was killed after its last edit left the manifest as it was.
    finishing = old in subject.sources and new in offsets and new not in subject.sources
    if new in offsets and not finishing:
        raise subject.refuse(
            f"its checkpoint has the source {new!r} already.",
            "no action is needed; run the stream.",
            code="nothing-to-change",
        )
    if recorded.stopped_at is None and old not in offsets and not finishing:
        known = sorted({*offsets, *(name for name, r in subject.sources.items() if r.stopped_at)})
        raise subject.refuse(
            f"its checkpoint has no position of a source {old!r}.",
            f"name one of {', '.join(known)}.",
            code="source-never-read",
        )
    return recorded.stopped_at or offsets.get(old)


def _apply(
    subject: StreamUnderChange,
    old: str,
    new: str,
    position: str | None,
    offsets: Offsets,
    *,
    removed: bool,
) -> None:
    if old != new and new not in offsets:  # a command that was killed later has copied it
        subject.writer.copy_source(old, new)

    def renamed(offsets: Offsets) -> Offsets:
        if removed:  # the entry before may have it from a batch that was repeated without it
            return {name: offset for name, offset in offsets.items() if name != old} | {new: position}
        return {new if name == old else name: offset for name, offset in offsets.items()}

    subject.writer.change_offsets(renamed)
    if old != new:
        subject.writer.archive_source(old)
    record = replace(subject.sources.get(old, SourceRecord()), stopped_at=None, accepted_as_new=False)
    others = {name: other for name, other in subject.sources.items() if name != old}
    subject.record(others | {new: record})


RENAME_SOURCE = OperationSpec(
    kind="rename-source",
    summary="Let a source continue under another name, or continue one that was removed.",
    apply=rename_source,
    arguments=(
        Argument(name="old", help="The name in the checkpoint.", required=True, positional=True),
        Argument(
            name="new",
            help="The name in the definition; the same as OLD to continue a source that was removed.",
            required=True,
            positional=True,
        ),
    ),
    one_stream=True,
)

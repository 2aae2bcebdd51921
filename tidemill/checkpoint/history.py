"""The batches of a checkpoint: when each was planned, its offsets, its watermark, and its commit."""

from collections.abc import Iterator
from dataclasses import dataclass

from tidemill.checkpoint.format.errors import CheckpointFormatError
from tidemill.checkpoint.format.folder import Checkpoint, Folder
from tidemill.checkpoint.format.logs import batches_in, offset_entry, open_checkpoint
from tidemill.checkpoint.format.offsets import OffsetEntry
from tidemill.checkpoint.format.source_offset import SourceOffset


@dataclass(frozen=True, slots=True)
class SourceRange:
    """The range that one batch read from one source.

    Attributes:
        start: The start of the range; None in the first batch, and if the batch before is no longer kept.
        end: The end of the range.
    """

    start: SourceOffset | None
    end: SourceOffset


@dataclass(frozen=True, slots=True)
class BatchHistory:
    """One batch whose offsets are still kept.

    Attributes:
        committed: True if it has a commit.
        planned_ms: When it was planned, milliseconds since the epoch; None if the file is unreadable.
        watermark_ms: Its watermark, milliseconds since the epoch; None before any event, or if the file is
            unreadable.
        sources: The ranges that it read.
        problem: Why its offsets are unreadable; None if they are readable.
    """

    batch_id: int
    committed: bool
    planned_ms: int | None
    watermark_ms: int | None
    sources: tuple[SourceRange, ...]
    problem: CheckpointFormatError | None = None


def history(checkpoint: Checkpoint, *, last: int | None = None) -> tuple[BatchHistory, ...]:
    """Return the batches of a checkpoint, oldest first.

    Args:
        last: The number of newest batches to return; None for all that are kept (Spark keeps a hundred).

    Raises:
        NotACheckpointError: The path is not a checkpoint.
    """
    folder = open_checkpoint(checkpoint)
    return tuple(_batches(folder, last))


def _batches(folder: Folder, last: int | None) -> Iterator[BatchHistory]:
    batches = batches_in(folder, "offsets")
    committed = set(batches_in(folder, "commits"))
    wanted = batches if last is None else batches[-last:]
    before = _read(folder, wanted[0] - 1) if wanted and wanted[0] - 1 in batches else None
    for batch in wanted:
        entry = _read(folder, batch)
        if isinstance(entry, OffsetEntry):
            start = before if isinstance(before, OffsetEntry) and before.batch_id == batch - 1 else None
            yield BatchHistory(
                batch_id=batch,
                committed=batch in committed,
                planned_ms=entry.timestamp_ms,
                watermark_ms=entry.watermark_ms or None,
                sources=tuple(
                    SourceRange(start.source(source.key) if start else None, source)
                    for source in entry.sources
                ),
            )
        else:
            yield BatchHistory(batch, batch in committed, None, None, (), problem=entry)
        before = entry


def _read(folder: Folder, batch_id: int) -> OffsetEntry | CheckpointFormatError:
    try:
        return offset_entry(folder, batch_id)
    except CheckpointFormatError as problem:
        return problem

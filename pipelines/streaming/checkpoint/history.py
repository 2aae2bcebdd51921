"""Batch by batch: when it was planned, which offsets it read, under which watermark, whether it ended."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from pipelines.streaming.checkpoint.errors import CheckpointFormatError
from pipelines.streaming.checkpoint.files import Folder
from pipelines.streaming.checkpoint.offsets import OffsetEntry
from pipelines.streaming.checkpoint.source_offset import SourceOffset
from pipelines.streaming.checkpoint.tail import batches_in, offset_entry, opened


@dataclass(frozen=True, slots=True)
class SourceRange:
    """What one batch read of one source.

    Attributes:
        start: Where it began; None in the first batch, and where the batch before is not kept any more.
        end: Up to where it read.
    """

    start: SourceOffset | None
    end: SourceOffset


@dataclass(frozen=True, slots=True)
class BatchHistory:
    """One batch of which the offsets are still kept.

    Attributes:
        batch_id: The batch.
        committed: Whether it ended.
        planned_ms: When it was planned, milliseconds since the epoch; None when the file cannot be read.
        watermark_ms: The watermark it ran under, milliseconds since the epoch; None likewise.
        sources: What it read.
        problem: Why its offsets cannot be read; None when they can.
    """

    batch_id: int
    committed: bool
    planned_ms: int | None
    watermark_ms: int | None
    sources: tuple[SourceRange, ...]
    problem: CheckpointFormatError | None = None


def history(path: str | os.PathLike[str], *, last: int | None = None) -> tuple[BatchHistory, ...]:
    """The batches of a checkpoint, oldest first.

    Args:
        path: The checkpoint.
        last: Only so many of the newest; None: all that are kept (Spark keeps a hundred).

    Raises:
        NotACheckpointError: the path is no checkpoint.
    """
    folder = opened(path)
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
                watermark_ms=entry.watermark_ms,
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

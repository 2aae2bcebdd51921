"""The part of each source that a backfill with a lookback reads: what is close to the range in the source's own time.

A file has its modification time, as the stream's log has it; a message its timestamp; a version of a table the time of
its commit. Nothing is read that the stream has not read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.files.backlog import logged_files
from tidemill.connectors.files.position import FilePosition
from tidemill.connectors.kafka.position import TopicPosition
from tidemill.operations.replay.source_history import missing_files
from tidemill.run.decide.sources import streaming_sources
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checkpoint import OffsetEntry, SourceFile, SourceOffset
    from tidemill.definitions.source import Source
    from tidemill.definitions.stream import Stream
    from tidemill.operations.replay.backfill_range import BackfillRange
    from tidemill.target.target import Target

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

Offsets = Mapping[tuple[str, int], int]
"""An offset per topic and partition."""


@dataclass(frozen=True, slots=True)
class Period:
    """A period of time, in milliseconds since the epoch; both ends belong to it.

    Attributes:
        first_ms: Its first moment.
        last_ms: Its last one.
    """

    first_ms: int
    last_ms: int

    @classmethod
    def around(cls, span: "BackfillRange", lookback: timedelta) -> "Period":
        """Return the period from a lookback before a range of times until a lookback after it.

        Args:
            span: The range; its values are dates, or times with a time zone.
            lookback: The lookback.
        """
        begin, end = (_since_epoch(value) for value in (span.begin, span.end))
        return cls((begin - lookback) // _MILLISECOND, -(-(end + lookback) // _MILLISECOND))

    def has(self, time_ms: int) -> bool:
        """Return whether a moment belongs to it."""
        return self.first_ms <= time_ms <= self.last_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpan:
    """The part of one source that is read. Without files, offsets and version: all that the stream has read.

    Attributes:
        reads: What it is, for people: `12 of 400 files of feed orders`.
        is_empty: Whether there is nothing in it.
        missing: What of it the source no longer has, a sentence each.
        files: The files, of a folder.
        begins: The first offset of each partition, of topics.
        ends: The offset after the last one, likewise.
        first_version: The first version, of a table.
        end: The offset up to which topics or a table are read, as Spark writes it.
    """

    reads: str
    is_empty: bool = False
    missing: tuple[str, ...] = ()
    files: "tuple[SourceFile, ...] | None" = None
    begins: Offsets | None = None
    ends: Offsets | None = None
    first_version: int | None = None
    end: str | None = None

    @property
    def is_part(self) -> bool:
        """Whether less is read than the stream has read."""
        return self.files is not None or self.end is not None


def source_spans(
    stream: "Stream", target: "Target", checkpoint: Path, entry: "OffsetEntry", period: Period
) -> dict[str, SourceSpan]:
    """Return what is read of each source of a stream, by name; a source without times of its own is left out.

    Args:
        stream: The stream.
        target: The target.
        checkpoint: Its checkpoint.
        entry: The offsets up to which it has read.
        period: The time of what is read.

    Raises:
        TransientError: A cluster does not answer.
    """
    spans = {}
    for name, source in streaming_sources(stream).items():
        offset = entry.source(name)
        if offset is None or offset.raw is None:
            continue
        if (position := FilePosition.of(offset)) is not None:
            last = position.entry
            logged = (file for file in logged_files(checkpoint, name) if file.entry <= last)
            spans[name] = files_span(source, logged, period)
        elif TopicPosition.of(offset) is not None:
            # librdkafka is loaded only where a topic is read.
            from tidemill.operations.replay.topic_span import topic_span

            spans[name] = topic_span(source, target, checkpoint, offset, period)
        elif DeltaPosition.of(offset) is not None:
            from tidemill.operations.replay.table_span import table_span

            spans[name] = table_span(source, target, offset, period)
    return spans


def span_read(checkpoint: Path, offset: "SourceOffset") -> SourceSpan:
    """Return what a checkpoint has read of a folder or of topics.

    Args:
        checkpoint: The checkpoint.
        offset: The offset up to which it has read.
    """
    if (position := FilePosition.of(offset)) is not None:
        last = position.entry
        files = tuple(file for file in logged_files(checkpoint, offset.key) if file.entry <= last)
        return SourceSpan(reads=pluralize(len(files), "file"), files=files)
    # librdkafka is loaded only where a topic is read.
    from tidemill.connectors.kafka.backlog import initial_offsets

    initial = initial_offsets(checkpoint, offset.key)
    begins = {} if initial is None else initial.by_partition
    read = TopicPosition.of(offset)
    ends = {} if read is None else read.by_partition
    return SourceSpan(reads="messages", begins=begins, ends=ends, end=offset.raw)


def files_span(source: "Source", logged: "Iterable[SourceFile]", period: Period) -> SourceSpan:
    """Return what is read of a folder.

    Args:
        source: The source.
        logged: The files that the stream has read.
        period: The time of what is read.
    """
    known = tuple(logged)
    files = tuple(file for file in known if period.has(file.timestamp_ms))
    return SourceSpan(
        reads=f"{len(files):,} of {pluralize(len(known), 'file')} of {source.describe()}",
        is_empty=not files,
        missing=missing_files(source, files),
        files=files,
    )


def _since_epoch(value: str) -> timedelta:
    moment = datetime.fromisoformat(value)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH

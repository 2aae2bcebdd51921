"""The lookback of a backfill: how much of the sources it reads around a range, and the check that this is enough."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tidemill.connectors.answers import Period, SourceSpan
from tidemill.connectors.connector import Reading
from tidemill.connectors.registry import resolved
from tidemill.errors import TerminalError
from tidemill.operations.replay.backfill_range import whole_because
from tidemill.operations.replay.range_origins import check_unread
from tidemill.run.decide.sources import streaming_sources
from tidemill.storage.store import Store
from tidemill.text.durations import format_duration, parse_duration

if TYPE_CHECKING:
    from tidemill.checkpoint import OffsetEntry
    from tidemill.definitions.stream import Stream
    from tidemill.operations.replay.backfill_range import BackfillRange
    from tidemill.records.stream_records import StreamRecords
    from tidemill.target.target import Target

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def period_around(span: "BackfillRange", lookback: timedelta) -> Period:
    """Return the period from a lookback before a range of times until a lookback after it.

    Args:
        span: The range; its values are dates, or times with a time zone.
    """
    begin, end = (_since_epoch(value) for value in (span.begin, span.end))
    return Period((begin - lookback) // _MILLISECOND, -(-(end + lookback) // _MILLISECOND))


def source_spans(
    stream: "Stream", target: "Target", checkpoint: Store, entry: "OffsetEntry", period: Period
) -> dict[str, SourceSpan]:
    """Return what is read of each source of a stream, by name; a source without times of its own is left out.

    Args:
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
        connector, bound = resolved(source, target)
        reading = Reading(target=target, name=name, offset=offset, checkpoint=checkpoint)
        span = connector.span(bound, reading, period)
        if span is not None:
            spans[name] = span
    return spans


def _since_epoch(value: str) -> timedelta:
    moment = datetime.fromisoformat(value)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH


TIMES = ("date", "timestamp")
"""The types of a column that a lookback can be around."""


@dataclass(frozen=True, slots=True)
class Lookback:
    """What a backfill of a stream reads.

    Attributes:
        length: The lookback; None where everything that the stream has read is read again.
    """

    stream: "Stream"
    target: "Target"
    records: "StreamRecords"
    span: "BackfillRange"
    length: timedelta | None

    def spans(self, entry: "OffsetEntry | None") -> Mapping[str, SourceSpan]:
        """Return what is read of each source; empty where that is everything.

        Args:
            entry: The offsets up to which the stream has read.

        Raises:
            TerminalError: The column of the range has no times.
            TransientError: A cluster does not answer.
        """
        if self.length is None or entry is None:
            return {}
        if self.span.kind not in TIMES:
            raise TerminalError(
                f"its column {self.span.column!r} is a {self.span.kind}, and a lookback is around a date or a time "
                "with a time zone.",
                stream=self.stream.name,
                fix="declare backfill_by= with a date or timestamp column; or declare no lookback.",
                code="backfill-by-unsuitable",
            )
        period = period_around(self.span, self.length)
        checkpoint = self.records.snapshot().checkpoint
        return source_spans(self.stream, self.target, checkpoint, entry, period)

    def checked(
        self, entry: "OffsetEntry | None", parts: Sequence[str] | None = None
    ) -> Mapping[str, SourceSpan]:
        """Return what is read of each source, after a check that the range can be computed from it.

        Args:
            entry: The offsets up to which the stream has read.
            parts: The sources of which only a part was to be read; None before that is decided.

        Raises:
            TerminalError: A row of the range came from what is not read, a source must be read as a whole since, or
                as `spans` raises.
            TransientError: A cluster does not answer.
        """
        spans = self.spans(entry)
        if self.length is None:
            return spans
        for name in parts_of(spans) if parts is None else parts:
            if not spans[name].is_part:
                raise TerminalError(
                    f"since the backfill began, it must read {spans[name].reads}.",
                    stream=self.stream.name,
                    fix="give the same command again: it starts over.",
                    code="changed-meanwhile",
                )
        check_unread(self.stream, self.records.table(), self.span, spans, format_duration(self.length))
        return spans


def parts_of(spans: Mapping[str, SourceSpan]) -> list[str]:
    """Return the names of the sources of which only a part is read."""
    return [name for name, span in spans.items() if span.is_part]


def lookback_of(stream: "Stream", given: str | timedelta | None) -> timedelta | None:
    """Return the lookback of a backfill: the one that is given, or else the declared one.

    Args:
        given: What the command was given.

    Raises:
        TerminalError: The rows of the stream depend on everything before them.
        DefinitionError: It is no length of time.
    """
    if given is None:
        return stream.lookback
    because = whole_because(stream)
    if because is None and not all(sink.only_appends for sink in stream.tables):
        because = "its rows depend on everything before them"
    if because is not None:
        raise TerminalError(
            f"a lookback is given, and everything is read again: {because}.",
            stream=stream.name,
            fix="leave --lookback out.",
            code="lookback-unused",
        )
    return parse_duration(given, field="lookback")

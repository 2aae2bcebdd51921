"""The part of each source that a backfill with a lookback reads: what is close to the range in time."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.connectors.connector import Reading
from tidemill.connectors.registry import resolved
from tidemill.connectors.span import Period, SourceSpan
from tidemill.run.decide.sources import streaming_sources

if TYPE_CHECKING:
    from tidemill.checkpoint import OffsetEntry
    from tidemill.definitions.stream import Stream
    from tidemill.operations.replay.backfill_range import BackfillRange
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
    stream: "Stream", target: "Target", checkpoint: Path, entry: "OffsetEntry", period: Period
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

"""The newest event time that a generation has read of each source, which Spark forgets when a query ends."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.records.batch import BatchRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestEvent:
    """The newest event of one source.

    Attributes:
        time_ms: Its event time, milliseconds since the epoch.
        read_at: The start of the last batch that read an event of the source, ISO-8601 UTC.
    """

    time_ms: int
    read_at: str


NewestEvents = Mapping[str, NewestEvent]


def with_batches(newest: NewestEvents, batches: Iterable[BatchRecord]) -> dict[str, NewestEvent]:
    """Return the newest events after some batches.

    Args:
        newest: Those before.
        batches: The batches, oldest first. One that was reconstructed after a kill has no event times: what is known
            is then a lower bound.
    """
    after = dict(newest)
    for batch in batches:
        for name, time_ms in batch.newest_event_ms_by_source.items():
            before = after.get(name)
            highest = time_ms if before is None else max(before.time_ms, time_ms)
            after[name] = NewestEvent(time_ms=highest, read_at=batch.started_at)
    return after


def newest_events_from_json(content: Mapping[str, Any]) -> dict[str, NewestEvent]:
    """Return newest events that were written as JSON."""
    return {name: NewestEvent(**event) for name, event in content.items()}

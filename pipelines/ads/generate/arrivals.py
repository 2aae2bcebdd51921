"""The order of arrival: the sequence, what precedes it, and what is late in it."""

from collections.abc import Iterator
from itertools import islice

from pipelines.ads.generate import sequence
from pipelines.ads.generate.records import Record
from pipelines.streaming.errors import ConfigurationError

LATE_IMPRESSIONS = 7


def arrivals(
    *, events: int, seed: int, start: int = 0, late: int = LATE_IMPRESSIONS
) -> Iterator[tuple[int, Record]]:
    """Records in the order in which they arrive, each with the index of the sequence that it comes with.

    Two calls, the second with the first one's end as its start, give the sequence that one call gives.
    Besides the sequence there are the campaigns that run already when it begins (with `start` 0), and
    impressions that come three days late, spread evenly (with a later start).

    Args:
        events: The number of indices, at least 1.
        seed: Another seed is another sequence.
        start: The first index.
        late: The number of late impressions, where there are any.

    Raises:
        ConfigurationError: a number is out of its range.
    """
    at_least(1, events, "events")
    at_least(0, start, "start")
    at_least(0, late, "late")
    return _arrivals(events, seed, start, late if start else 0)


def _arrivals(events: int, seed: int, start: int, late: int) -> Iterator[tuple[int, Record]]:
    if start == 0:
        yield from ((0, record) for record in sequence.opening(seed))
    delayed = sequence.late(seed, start, late)
    for offset, record in enumerate(islice(sequence.records(seed, start), events)):
        yield start + offset, record
        due = late * (offset + 1) // events - late * offset // events
        yield from ((start + offset, late_record) for late_record in islice(delayed, due))


def at_least(least: int, value: int, name: str) -> None:
    """Refuses a number below its range.

    Raises:
        ConfigurationError: with the name and the value.
    """
    if value < least:
        raise ConfigurationError(f"demo generate: {name} is {value}; it must be at least {least}.")

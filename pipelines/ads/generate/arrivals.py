"""The order of arrival: the sequence, the records before it, and the late records in it."""

from collections.abc import Iterator
from itertools import islice

from pipelines.ads.generate import sequence
from pipelines.ads.generate.records import Record
from tidemill.errors import ConfigurationError

LATE_IMPRESSIONS = 7


def arrivals(
    *, events: int, seed: int, start: int = 0, late: int = LATE_IMPRESSIONS
) -> Iterator[tuple[int, Record]]:
    """Return the records in the order of arrival, each with the index at which it arrives.

    Two calls, of which the second starts at the end of the first, return the same sequence as one call. With
    `start` 0, the campaigns at the beginning precede the sequence. With a later start, impressions that are three
    days late are spread evenly over it.

    Args:
        events: The number of indices, at least 1.
        seed: The seed of the sequence.
        start: The first index.
        late: The number of late impressions; ignored with `start` 0.

    Raises:
        ConfigurationError: A number is out of its range.
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
    """Check that a number is in its range.

    Raises:
        ConfigurationError: The number is below its range.
    """
    if value < least:
        raise ConfigurationError(
            f"demo generate: {name} is {value}; it must be at least {least}.", code="argument-invalid"
        )

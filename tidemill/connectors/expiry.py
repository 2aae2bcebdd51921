"""When the retention of a source removes data that a stream has not read."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Expiry:
    """When unread data may be removed.

    Attributes:
        at_ms: The earliest time, milliseconds since the epoch.
        retention: The retention that removes it.
        what: What is removed, and by which setting; for people.
    """

    at_ms: int
    retention: timedelta
    what: str


def milliseconds(length: timedelta) -> int:
    """Return a length of time in milliseconds."""
    return length // timedelta(milliseconds=1)

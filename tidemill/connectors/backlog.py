"""A backlog: a count and its unit, where the unread data is, and how much and how old it is.

The amount costs more than a count: the size of every unread file, the actions of every unread commit, and for Kafka one
unread message per partition. Only a policy with conditions and a status view need it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from tidemill.definitions.bounds import Unit
from tidemill.definitions.run_when import Amount


class Unread(ABC):
    """Where the unread data of a source is."""

    @abstractmethod
    def amount(self, count: int, *, times: bool) -> Amount:
        """Return how much it is in rows, files and bytes, and how old; what disappears meanwhile does not count.

        Args:
            count: The number that the backlog has.
            times: Whether the ages may cost a round trip.
        """


@dataclass(frozen=True, slots=True)
class Backlog:
    """The data of one source that is not read yet. It is true when there is some.

    It may err only towards more: what cannot be counted from outside counts as one.

    Attributes:
        count: How many.
        unit: The unit; versions are those of a Delta table, from the first one on that changes data. `unknown` where
            only a run can find out whether there is anything.
        detail: Where the data is, or why it could not be counted; for people.
        head: The newest data in the source, read or not: the end offsets, the number of files and the last name,
            or the table's version. Empty where it is unknown. It changes when data arrives.
        unread: Where the unread data is; None where there is none, or it is unknown.
        warning: What Spark will never read, as a sentence without its subject; empty where there is no such data.
    """

    count: int
    unit: Unit | Literal["unknown"]
    detail: str = ""
    head: str = field(default="", kw_only=True)
    unread: Unread | None = field(default=None, kw_only=True, repr=False, compare=False)
    warning: str = field(default="", kw_only=True)

    def __bool__(self) -> bool:
        return self.count > 0

    @property
    def is_known(self) -> bool:
        """Whether it is known how much waits."""
        return self.unit != "unknown"

    def __str__(self) -> str:
        if not self.is_known:
            return "uncounted data"
        return f"{self.count} {self.unit.removesuffix('s') if self.count == 1 else self.unit}"


# Up to twice as much, a JVM that compiles once is done sooner: docs/performance.md.
_LITTLE_BYTES = 32 << 20
_LITTLE_ROWS = 100_000


def amount_of(backlogs: Iterable[Backlog], *, times: bool = True) -> Amount:
    """Return how much waits in some sources together.

    Args:
        backlogs: The backlogs of the sources.
        times: Whether the ages may cost a round trip. A broker that does not answer leaves them unknown.
    """
    amounts = [one.unread.amount(one.count, times=times) for one in backlogs if one.unread is not None]
    return Amount(
        rows=_sum(amount.rows for amount in amounts),
        files=_sum(amount.files for amount in amounts),
        bytes=_sum(amount.bytes for amount in amounts),
        oldest_at=min(filter(None, (amount.oldest_at for amount in amounts)), default=None),
        newest_at=max(filter(None, (amount.newest_at for amount in amounts)), default=None),
    )


def is_little(backlogs: Iterable[Backlog]) -> bool:
    """Return whether so little waits in some sources together that starting Spark takes longer than reading it."""
    waiting = [backlog for backlog in backlogs if backlog]
    if any(backlog.unread is None for backlog in waiting):
        return False  # it is unknown how much
    amounts = [amount_of([backlog], times=False) for backlog in waiting]
    # Where the bytes are unknown, the rows decide.
    rows = sum(amount.rows or 0 for amount in amounts if amount.bytes is None)
    return rows <= _LITTLE_ROWS and sum(amount.bytes or 0 for amount in amounts) <= _LITTLE_BYTES


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None

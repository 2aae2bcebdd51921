"""A backlog: a count and its unit, and where the unread data is."""

from abc import ABC, abstractmethod
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
    """

    count: int
    unit: Unit | Literal["unknown"]
    detail: str = ""
    head: str = field(default="", kw_only=True)
    unread: Unread | None = field(default=None, kw_only=True, repr=False, compare=False)

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

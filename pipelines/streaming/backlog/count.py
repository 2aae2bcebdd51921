"""A backlog: how much waits, and in which unit."""

from dataclasses import dataclass
from typing import Literal

Unit = Literal["files", "messages", "versions"]


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in one source. It is true when something does.

    It may err only towards more: what cannot be counted from outside counts as one.

    Attributes:
        count: How many.
        unit: What is counted; versions are those of a Delta table, from the first that changes data on.
        detail: Where it waits, or why it could not be counted; for people.
    """

    count: int
    unit: Unit
    detail: str = ""

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        return f"{self.count} {self.unit.removesuffix('s') if self.count == 1 else self.unit}"

"""A backlog: a count and its unit."""

from dataclasses import dataclass
from typing import Literal

Unit = Literal["files", "messages", "versions"]


@dataclass(frozen=True, slots=True)
class Backlog:
    """The data of one source that is not read yet. It is true when there is some.

    It may err only towards more: data that cannot be counted from outside counts as one.

    Attributes:
        count: How many.
        unit: The unit; versions are those of a Delta table, from the first one on that changes data.
        detail: Where the data is, or why it could not be counted; for people.
    """

    count: int
    unit: Unit
    detail: str = ""

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        return f"{self.count} {self.unit.removesuffix('s') if self.count == 1 else self.unit}"

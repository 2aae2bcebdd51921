"""BackfillBy: the column whose values a backfill selects rows by, and its partitions in Dagster."""

from dataclasses import dataclass
from datetime import date
from typing import Literal, get_args

from tidemill.errors import DefinitionError
from tidemill.text.names import valid_choice

Every = Literal["day", "hour"]


@dataclass(frozen=True, slots=True)
class BackfillBy:
    """The column of a stream's tables whose values a backfill selects rows by.

    With `every` and `since`, Dagster has an asset with one partition per day or hour (UTC), which replays the
    selected ones. A column that is a date or a string in the form of a date has days only.

    Attributes:
        column: The column: a date, a timestamp or a string.
        every: The length of a partition: `day` or `hour`; None for no partitions.
        since: The first day that has a partition, such as `2026-01-01`.
    """

    column: str
    every: Every | None = None
    since: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise DefinitionError(f"backfill_by is {self.column!r}: name a column of the table.")
        if self.every is not None:
            valid_choice(self.every, get_args(Every), field="BackfillBy: every")
        if (self.every is None) != (self.since is None):
            raise DefinitionError(
                "BackfillBy: give both every= and since=, or none of them.", code="arguments-conflict"
            )
        if self.since is not None and not _is_day(self.since):
            raise DefinitionError(f"BackfillBy: since is {self.since!r}; give a day, such as '2026-01-31'.")


def backfill_column(given: object) -> BackfillBy | None:
    """Return what a stream declares as `backfill_by`: a column's name stands for a `BackfillBy` without partitions.

    Raises:
        DefinitionError: It is neither a name nor a `BackfillBy`.
    """
    if given is None or isinstance(given, BackfillBy):
        return given
    if not isinstance(given, str):
        raise DefinitionError(
            f"backfill_by is {given!r}: name a column of the table, or give BackfillBy(...)."
        )
    return BackfillBy(given)


def _is_day(text: object) -> bool:
    try:
        return isinstance(text, str) and date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False

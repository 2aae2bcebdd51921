"""Report: the answer of a command as one value, which is rendered as a table for people or as JSON for programs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a report's table.

    Attributes:
        cell: The key of a row, or a function of it; None is an empty cell, and numbers are grouped by thousands.
        right: Whether its cells are aligned to the right.
        whole: Whether its cells stay on one line.
        styles: The color of a cell, by the cell.
    """

    heading: str
    cell: str | Callable[[Row], object]
    right: bool = False
    whole: bool = False
    styles: Mapping[str, str] = field(default_factory=dict)

    def of(self, row: Row) -> str:
        """Return the cell of a row."""
        value = row.get(self.cell) if isinstance(self.cell, str) else self.cell(row)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return f"{value:,}"
        return "" if value is None else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a command has to say, for people and for programs.

    Attributes:
        items: The objects that it is about, as JSON.
        key: The key of their list in the JSON object; empty where the only item is the object itself.
        head: What the JSON object has besides.
        columns: The columns of the table; none where there is no table.
        rows: The rows of the table; None where each item is a row.
        lines: What people read after the table.
    """

    items: Sequence[Row]
    key: str = "streams"
    head: Mapping[str, Any] = field(default_factory=dict)
    columns: Sequence[Column] = ()
    rows: Sequence[Row] | None = None
    lines: Sequence[str] = ()

    @property
    def content(self) -> dict[str, Any]:
        """The JSON object."""
        if not self.key:
            (item,) = self.items
            return {**self.head, **item}
        return {**self.head, self.key: list(self.items)}


def rows_of(items: Sequence[Row], key: str, *, keep_empty: bool = False, repeat: bool = True) -> list[Row]:
    """Return a row for each object in a list of each item, with what the item has.

    Args:
        key: The key of the list.
        keep_empty: Whether an item with an empty list has a row.
        repeat: Whether each row has what the item has, and not only its first.
    """
    rows: list[Row] = []
    for item in items:
        for number, part in enumerate(item[key] or ([{}] if keep_empty else [])):
            rows.append({**(item if repeat or not number else {}), **part})
    return rows


def megabytes(count: int | None) -> str:
    """Return a number of bytes as megabytes."""
    return "" if count is None else f"{count / 1e6:,.1f}"

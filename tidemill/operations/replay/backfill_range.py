"""The rows of a table that a backfill replaces: a range of one of its columns."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from tidemill.errors import TerminalError
from tidemill.text.names import sql_identifier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemill.definitions.stream import Stream
    from tidemill.storage.table_ref import TableRef

_KINDS = {"date": "DATE", "timestamp": "TIMESTAMP", "timestamp_ntz": "TIMESTAMP_NTZ", "string": ""}


@dataclass(frozen=True, slots=True)
class BackfillRange:
    """A range of a column's values.

    Attributes:
        kind: Its type in Delta: `date`, `timestamp`, `timestamp_ntz` or `string`.
        begin: The first value that is replaced, as ISO-8601 where it is a time.
        end: The first value that is not.
    """

    column: str
    kind: str
    begin: str
    end: str

    def __str__(self) -> str:
        return f"{self.begin} <= {self.column} < {self.end}"

    @classmethod
    def decided(cls, decided: "Mapping[str, Any]") -> "BackfillRange":
        """Return the range that an operation has decided on."""
        return cls(decided["column"], decided["type"], decided["begin"], decided["end"])

    @property
    def condition(self) -> str:
        """The range as a condition in SQL."""
        column = sql_identifier(self.column)
        return f"{column} >= {self._literal(self.begin)} AND {column} < {self._literal(self.end)}"

    def _literal(self, value: str) -> str:
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"{_KINDS[self.kind]}'{escaped}'"


def whole_because(stream: "Stream") -> str | None:
    """Return why a range of a stream cannot be computed alone; None where it can."""
    if stream.query.output_mode != "append":
        return "its rows are running totals, which depend on everything before them"
    for name, source in stream.sources.items():
        if source.upstream is not None and source.reads_changes:
            return f"its source {name!r} is a change data feed, whose past cannot be read again"
    return None


def backfill_range(stream: "Stream", table: "TableRef", begin: str, end: str) -> BackfillRange:
    """Return the range of a stream's table from `begin` to `end`.

    Args:
        table: Its main table's folder.
        begin: The first value: a date, a time (UTC, unless it has an offset) or a string, as the column is.
        end: The first value that is not in the range.

    Raises:
        TerminalError: The stream declares no such column, the column is of another type, or a value is not of its
            type.
    """
    if stream.backfill_by is None:
        raise TerminalError(
            "it declares no column to select rows by.",
            stream=stream.name,
            fix=f"declare backfill_by= with a date or timestamp column of its table; or rebuild it as a whole: "
            f"tidemill rebuild {stream.name}",
            code="backfill-by-missing",
        )
    column = stream.backfill_by.column
    opened = table.open()
    kinds = (
        {} if opened is None else {one.name: getattr(one.type, "type", "") for one in opened.schema().fields}
    )
    kind = kinds.get(column)
    if kind not in _KINDS:
        raise TerminalError(
            f"backfill_by is {column!r}, and its table has "
            + ("no such column." if kind is None else f"it as {kind or 'a nested type'}."),
            stream=stream.name,
            fix="name a column that is a date, a timestamp or a string.",
            code="backfill-by-unsuitable",
        )
    first, last = (_value(stream, column, kind, value) for value in (begin, end))
    if first >= last:
        raise TerminalError(
            f"the range from {begin} to {end} is empty.",
            stream=stream.name,
            fix="give a later end with --to.",
            code="argument-invalid",
        )
    return BackfillRange(column, kind, first, last)


def _value(stream: "Stream", column: str, kind: str, value: str) -> str:
    try:
        if kind == "date":
            return date.fromisoformat(value).isoformat()
        if kind == "timestamp":
            moment = datetime.fromisoformat(value)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
            return moment.isoformat(sep=" ")
        if kind == "timestamp_ntz":
            return datetime.fromisoformat(value).replace(tzinfo=None).isoformat(sep=" ")
    except ValueError:
        raise TerminalError(
            f"{value!r} is no {kind} for the column {column!r}.",
            stream=stream.name,
            fix="give a value such as 2026-01-31" + ("." if kind == "date" else "T12:00."),
            code="argument-invalid",
        ) from None
    return value

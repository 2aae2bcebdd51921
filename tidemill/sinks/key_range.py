"""The range of the keys of a micro-batch, so that a merge reads only the files of its table that can have them.

Delta leaves out files by the least and greatest values in its log where a condition compares a column with literals
(Delta docs, "Data skipping"). A condition that compares it with a column of the source leaves out none.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from tidemill.text.names import sql_identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVERYWHERE = "true"
# What makes a number of a value. A timestamp in Python would depend on the time zone, twice a year with no way back.
_AS_NUMBER = {
    "tinyint": "{}",
    "smallint": "{}",
    "int": "{}",
    "bigint": "{}",
    "date": "unix_date({})",
    "timestamp": "unix_micros({})",
}
# Literals of the column's own type: with a cast of the column, Delta would leave out no file.
_SUFFIX = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L"}


def key_range(rows: "DataFrame", columns: Sequence[str]) -> str:
    """Return the condition, in SQL over a table `t`, that its columns are in the range of those of the rows.

    Args:
        rows: The rows; they are read once more if a column has a range.
        columns: Columns of the rows and of the table. Integers, dates and timestamps have ranges, other types have
            none.
    """
    from pyspark.sql import functions as F

    types = {column: rows.schema[column].dataType.simpleString() for column in columns}
    ranged = [column for column in columns if types[column] in _AS_NUMBER]
    if not ranged:
        return EVERYWHERE
    numbers = [_AS_NUMBER[types[column]].format(sql_identifier(column)) for column in ranged]
    ends = rows.agg(*(F.expr(f"{end}({number})") for number in numbers for end in ("min", "max"))).first()
    pairs = zip(ends[::2], ends[1::2], strict=True) if ends else ()
    terms = (_between(column, types[column], *pair) for column, pair in zip(ranged, pairs, strict=False))
    return " AND ".join(filter(None, terms)) or EVERYWHERE


def _between(column: str, kind: str, least: int | None, greatest: int | None) -> str | None:
    """Return the condition for one column; None without values, or with a date that Python does not have."""
    if least is None or greatest is None:
        return None
    try:
        return f"t.{sql_identifier(column)} BETWEEN {_literal(kind, least)} AND {_literal(kind, greatest)}"
    except OverflowError:
        return None


def _literal(kind: str, number: int) -> str:
    if kind == "date":
        return f"DATE '{date(1970, 1, 1) + timedelta(days=number)}'"
    if kind == "timestamp":
        return f"TIMESTAMP '{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=number)}'"
    return f"{number}{_SUFFIX[kind]}"

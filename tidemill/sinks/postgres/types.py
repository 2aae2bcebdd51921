"""Types of Spark as types of Postgres: of a created column, those of a column that exists, and the text of a value.

Spark writes each value as text in the syntax of Postgres's COPY, so that the time zone of a session, and what Python's
types cannot hold, do not matter.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_INTEGERS = ("smallint", "integer", "bigint")
# The type that a column is created with, and the others that take every value.
_TYPES = {
    "boolean": ("boolean",),
    "tinyint": _INTEGERS,
    "smallint": _INTEGERS,
    "int": _INTEGERS[1:],
    "bigint": _INTEGERS[2:],
    "float": ("real", "double precision"),
    "double": ("double precision",),
    "string": ("text", "character varying", "character", "citext", "uuid", "json", "jsonb", "enum"),
    "binary": ("bytea",),
    "date": ("date",),
    "timestamp": ("timestamp with time zone",),
    "timestamp_ntz": ("timestamp without time zone",),
}
_NESTED = ("jsonb", "json")
# The digits of each integer type, in front of the point.
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_LENGTH = re.compile(r"(character(?: varying)?)\(\d+\)")


def created_type(kind: "DataType") -> str | None:
    """Return the type of a created column; None where Postgres has none for the type of Spark."""
    if digits := _decimal(kind):
        return f"numeric({digits[0]},{digits[1]})"
    types = _types(kind)
    return types[0] if types else None


def takes(column_type: str, kind: "DataType") -> bool:
    """Return whether a column takes every value of a type of Spark, apart from the length of a string.

    Args:
        column_type: The type of the column as Postgres's `format_type` returns it; `enum` for any enum.
        kind: The type of Spark.
    """
    digits = _decimal(kind) or (_DIGITS.get(kind.simpleString(), 0), 0)
    if digits[0]:
        if column_type == "numeric":
            return True
        if limits := _NUMERIC.fullmatch(column_type):
            precision, scale = map(int, limits.groups())
            return scale >= digits[1] and precision - scale >= digits[0] - digits[1]
    return _LENGTH.sub(r"\1", column_type) in _types(kind)


def copy_text(column: "Column", kind: "DataType") -> "Column":
    """Return the values of a column as Postgres reads them; a NULL stays one."""
    from pyspark.sql import functions as F

    name = kind.simpleString()
    if name == "timestamp":
        # With its offset and its era, so neither the session's time zone nor the year decides what it means.
        return F.date_format(column, "yyyy-MM-dd HH:mm:ss.SSSSSSXXXXX G")
    if name == "binary":
        return F.concat(F.lit("\\x"), F.hex(column))
    if _types(kind) == _NESTED:
        return F.to_json(column, {"ignoreNullFields": "false"})
    return column.cast("string")


def _types(kind: "DataType") -> tuple[str, ...]:
    from pyspark.sql.types import ArrayType, MapType, StructType

    return (
        _NESTED if isinstance(kind, ArrayType | MapType | StructType) else _TYPES.get(kind.simpleString(), ())
    )


def _decimal(kind: "DataType") -> tuple[int, int] | None:
    from pyspark.sql.types import DecimalType

    return (kind.precision, kind.scale) if isinstance(kind, DecimalType) else None

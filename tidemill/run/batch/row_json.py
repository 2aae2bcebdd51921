"""A row of an output as JSON, and back: the quarantine keeps it in the same table as the text of a feed's records."""

from typing import TYPE_CHECKING

from tidemill.connectors.formats.format import CORRUPT
from tidemill.definitions.columns import BATCH, ORIGIN, ORIGIN_TYPE, REFUSED_BY
from tidemill.errors import TerminalError
from tidemill.text.names import sql_identifier

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

# Spark's own formats end at milliseconds, and the session's time zone may be another one when the row is read.
_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}


def has_origin(output: "StructType") -> bool:
    """Return whether the rows of an output have the origin that a feed gave them."""
    return any(
        field.name == ORIGIN and field.dataType.simpleString() == ORIGIN_TYPE for field in output.fields
    )


def json_columns(output: "StructType") -> "StructType":
    """Return the columns of an output that its JSON has: the origin and the batch have columns of their own."""
    from pyspark.sql.types import StructType

    apart = (REFUSED_BY, BATCH, *([ORIGIN] if has_origin(output) else ()))
    return StructType([field for field in output.fields if field.name not in apart])


def row_as_json(columns: "StructType") -> "Column":
    """Return some columns of a row as JSON."""
    from pyspark.sql import functions as F

    return F.to_json(F.struct(*(F.col(sql_identifier(field.name)) for field in columns.fields)), _OPTIONS)


def row_of_json(text: str, columns: "StructType") -> "Column":
    """Return the JSON of a row as a struct; NULL where it has a value that the columns cannot hold.

    A column that the JSON lacks is NULL: it is newer than the row.

    Args:
        text: The column with the JSON.
        columns: The columns of the struct.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType([*columns.fields, StructField(CORRUPT, StringType())])
    options = {**_OPTIONS, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = F.from_json(text, schema, options)
    names = F.array(*(F.lit(name) for name in columns.names)).cast("array<string>")
    is_lost = F.size(F.array_except(F.json_object_keys(text), names)) > 0
    return F.when(parsed[CORRUPT].isNull() & ~is_lost, parsed.dropFields(CORRUPT))


def part_of_json(text: str, columns: "StructType") -> "Column":
    """Return some columns of a row in JSON as a struct; one that it lacks, or has as another type, is NULL.

    Args:
        text: The column with the JSON.
        columns: The columns of the struct.
    """
    from pyspark.sql import functions as F

    return F.from_json(text, columns, {**_OPTIONS, "mode": "PERMISSIVE"})


def check_readable(columns: "StructType") -> None:
    """Check that Spark can read the JSON of a row again.

    Raises:
        TerminalError: A column has a type that it cannot read from JSON.
    """
    for field in columns.fields:
        if _has_other_keys(field.dataType):
            raise TerminalError(
                f"an expectation has on_violation='quarantine', and the column {field.name!r} is "
                f"{field.dataType.simpleString()}: the row goes to quarantine as JSON, whose keys are strings, so it "
                "could not be replayed.",
                fix="make the keys strings in the function, or use another on_violation=.",
                code="expectation-unsuitable",
            )


def _has_other_keys(kind: "DataType") -> bool:
    """Return whether a type has a map whose keys are not strings."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, MapType):
        return not isinstance(kind.keyType, StringType) or _has_other_keys(kind.valueType)
    if isinstance(kind, ArrayType):
        return _has_other_keys(kind.elementType)
    return isinstance(kind, StructType) and any(_has_other_keys(field.dataType) for field in kind.fields)

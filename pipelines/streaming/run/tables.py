"""Tables before a run: made when they are missing, widened by new columns, refused when they do not fit."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.streaming import delta_log
from pipelines.streaming.errors import SchemaChangeError, TerminalError
from pipelines.streaming.names import quoted
from pipelines.streaming.sinks import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField, StructType

_EXPIRY = "delta.setTransactionRetentionDuration"


def prepare(spark: "SparkSession", sink: Sink, place: Path, output: "StructType") -> None:
    """Makes a target ready for an output with these columns.

    New columns are added (they are nullable in the rows that are there). Everything else is refused.

    Raises:
        SchemaChangeError: a column is gone or has another type, or is new and `merge_schema` is off.
        TerminalError: the table forgets transactions, so a repeat could count twice.
    """
    from pyspark.sql.types import StructType

    wanted = sink.table_schema(output)
    table = delta_log.open_table(place)
    if table is None:
        columns = ", ".join(map(_column, wanted.fields))
        spark.sql(f"CREATE TABLE delta.{quoted(str(place))} ({columns}) USING delta {sink.create_options()}")
        return
    if _EXPIRY in table.metadata().configuration:
        raise TerminalError(
            f"the table {place} has the property {_EXPIRY}: it would forget which batches it has, and a repeat "
            "would be counted twice.",
            fix=f"ALTER TABLE delta.{quoted(str(place))} UNSET TBLPROPERTIES ('{_EXPIRY}')",
        )
    new = new_columns(StructType.fromJson(json.loads(table.schema().to_json())), wanted, place)
    if new and not getattr(sink, "merge_schema", True):
        raise SchemaChangeError(
            f"the output has the new column {new[0].name!r}, and the sink says merge_schema=False.",
            fix="Drop the column in the function, or set merge_schema=True.",
        )
    if new:
        spark.sql(f"ALTER TABLE delta.{quoted(str(place))} ADD COLUMNS ({', '.join(map(_column, new))})")


def new_columns(table: "StructType", output: "StructType", place: Path) -> "list[StructField]":
    """The columns that a table lacks.

    Raises:
        SchemaChangeError: a column of the table is gone from the output, or has another type there.
    """
    types = {field.name.lower(): field for field in output.fields}
    for field in table.fields:
        found = types.pop(field.name.lower(), None)
        if found is None:
            raise SchemaChangeError(
                f"the output no longer has the column {field.name!r} of the table {place.name}.",
                fix=f"Keep it in the function, for example as lit(None).cast('{field.dataType.simpleString()}').",
            )
        if found.dataType.simpleString() != field.dataType.simpleString():
            raise SchemaChangeError(
                f"the column {field.name!r} is {found.dataType.simpleString()} in the output and "
                f"{field.dataType.simpleString()} in the table {place.name}.",
                fix=f"Cast it to {field.dataType.simpleString()} in the function, or give the new column "
                "another name.",
            )
    return list(types.values())


def _column(field: "StructField") -> str:
    return f"{quoted(field.name)} {field.dataType.simpleString()}"

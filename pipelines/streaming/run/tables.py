"""Tables before a run: created when missing, widened by new columns, refused when they do not fit."""

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


def prepare(spark: "SparkSession", sink: Sink, path: Path, output: "StructType") -> None:
    """Make a sink's table ready for an output with these columns.

    New columns are added (they are NULL in the rows that are there). Every other change is refused.

    Raises:
        SchemaChangeError: A column is missing or has another type, or is new and `merge_schema` is off.
        TerminalError: The table forgets transactions, so a repeat could count twice.
    """
    from pyspark.sql.types import StructType

    schema = sink.table_schema(output)
    table = delta_log.open_table(path)
    if table is None:
        columns = ", ".join(map(_column, schema.fields))
        spark.sql(f"CREATE TABLE delta.{quoted(str(path))} ({columns}) USING delta {sink.create_options()}")
        return
    if _EXPIRY in table.metadata().configuration:
        raise TerminalError(
            f"the table {path} has the property {_EXPIRY}: it would forget which batches it has, and a repeated "
            "batch would be counted twice.",
            fix=f"ALTER TABLE delta.{quoted(str(path))} UNSET TBLPROPERTIES ('{_EXPIRY}')",
        )
    new = new_columns(StructType.fromJson(json.loads(table.schema().to_json())), schema, path)
    if new and not getattr(sink, "merge_schema", True):
        raise SchemaChangeError(
            f"the output has the new column {new[0].name!r}, and the sink has merge_schema=False.",
            fix="drop the column in the function, or set merge_schema=True.",
        )
    if new:
        spark.sql(f"ALTER TABLE delta.{quoted(str(path))} ADD COLUMNS ({', '.join(map(_column, new))})")


def new_columns(table: "StructType", output: "StructType", path: Path) -> "list[StructField]":
    """Return the columns that a table does not have.

    Raises:
        SchemaChangeError: A column of the table is missing in the output, or has another type there.
    """
    fields = {field.name.lower(): field for field in output.fields}
    for column in table.fields:
        field = fields.pop(column.name.lower(), None)
        kind = column.dataType.simpleString()
        if field is None:
            raise SchemaChangeError(
                f"the output no longer has the column {column.name!r} of the table {path.name}.",
                fix=f"keep the column in the function, for example as lit(None).cast('{kind}').",
            )
        if field.dataType.simpleString() != kind:
            raise SchemaChangeError(
                f"the column {column.name!r} is {field.dataType.simpleString()} in the output and {kind} in the "
                f"table {path.name}.",
                fix=f"cast it to {kind} in the function, or give the new column another name.",
            )
    return list(fields.values())


def _column(field: "StructField") -> str:
    return f"{quoted(field.name)} {field.dataType.simpleString()}"

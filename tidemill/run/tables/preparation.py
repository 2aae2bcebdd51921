"""Tables before a run: created when missing, widened by new columns, refused when they do not fit."""

import json
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.definitions.columns import DELETED
from tidemill.definitions.sink import Sink
from tidemill.errors import SchemaChangeError, TerminalError
from tidemill.records.stream_records import Snapshot
from tidemill.storage import delta_log
from tidemill.text.names import sql_identifier

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField, StructType

    from tidemill.definitions.stream import Stream

_EXPIRY = "delta.setTransactionRetentionDuration"


def check_sinks(stream: "Stream", snapshot: Snapshot) -> None:
    """Check that the tables of a stream were written as its sinks are declared now.

    Raises:
        SchemaChangeError: The kind of a sink, its keys, or what orders and dates its rows has changed.
    """
    recorded = {} if snapshot.manifest is None else snapshot.manifest.active.sinks
    for sink in stream.sinks:
        before, path = recorded.get(sink.name), snapshot.records.table(sink.name)
        if before is not None and dict(before) != sink.identity and _was_written(path):
            raise _other_sink(path, _described(before), sink)


def prepare(spark: "SparkSession", sink: Sink, path: Path, output: "StructType") -> None:
    """Make a sink's table ready for an output with these columns.

    New columns are added (they are NULL in the rows that are there). A table that never had a row or a batch is
    recreated if it does not fit.

    Raises:
        TidemillError: What `check_table` raises.
    """
    new = check_table(sink, path, output)
    if new is None:
        if path.exists():
            # Another schema in the same log would stop each reader, because readers begin at version 0.
            shutil.rmtree(path)
        columns = ", ".join(map(_column, sink.table_schema(output).fields))
        spark.sql(
            f"CREATE TABLE delta.{sql_identifier(str(path))} ({columns}) USING delta {sink.create_options()}"
        )
    else:
        add_columns(spark, path, new)


def add_columns(spark: "SparkSession", path: Path, columns: "Collection[StructField]") -> None:
    """Add columns to a table, NULL in the rows that are there; without columns there is no commit."""
    if columns:
        added = ", ".join(map(_column, columns))
        spark.sql(f"ALTER TABLE delta.{sql_identifier(str(path))} ADD COLUMNS ({added})")


def check_table(sink: Sink, path: Path, output: "StructType") -> "list[StructField] | None":
    """Return the columns that a sink's table needs for an output; None where the table must be created.

    Raises:
        SchemaChangeError: A column is missing or has another type, or is new and `merge_schema` is off; or the table
            belongs to another kind of sink.
        TerminalError: The table forgets transactions, so a repeat could count twice.
    """
    schema = sink.table_schema(output)
    table = delta_log.open_table(path)
    if table is None or (not _fits(table, sink, schema) and not _was_written(path)):
        return None
    if _EXPIRY in table.metadata().configuration:
        raise TerminalError(
            f"the table {path} has the property {_EXPIRY}: it would forget which batches it has, and a repeated "
            "batch would be counted twice.",
            fix=f"ALTER TABLE delta.{sql_identifier(str(path))} UNSET TBLPROPERTIES ('{_EXPIRY}')",
        )
    columns_now = _schema(table)
    _check_kind(columns_now.names, schema.names, sink, path)
    new = new_columns(columns_now, schema, path)
    if new and not getattr(sink, "merge_schema", True):
        raise SchemaChangeError(
            f"the output has the new column {new[0].name!r}, and the sink has merge_schema=False.",
            fix="drop the column in the function, or set merge_schema=True.",
        )
    return new


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
    return f"{sql_identifier(field.name)} {field.dataType.simpleString()}"


def _schema(table: "DeltaTable") -> "StructType":
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(table.schema().to_json()))


def _fits(table: "DeltaTable", sink: Sink, schema: "StructType") -> bool:
    """Return whether a table has exactly these columns, and the sink's partitions."""
    partitions = list(getattr(sink, "partition_by", ()))
    columns = list(map(_column, _schema(table).fields))
    return columns == list(map(_column, schema.fields)) and table.metadata().partition_columns == partitions


def _was_written(path: Path) -> bool:
    """Return whether a table ever had a row or a batch; True where its log no longer shows the beginning."""
    if delta_log.read_commit(path, 0) is None:
        return delta_log.open_table(path) is not None
    return any(commit.adds_rows or commit.transactions for commit in delta_log.commits(path, 0))


def _check_kind(table: Collection[str], schema: Collection[str], sink: Sink, path: Path) -> None:
    """Refuse a table of another kind of sink, as its columns show: a manifest may not have recorded the sink."""
    is_merge = DELETED in table
    if is_merge != (DELETED in schema):
        raise _other_sink(path, "a DeltaMerge" if is_merge else "a sink that does not merge", sink)


def _other_sink(path: Path, before: str, sink: Sink) -> SchemaChangeError:
    return SchemaChangeError(
        f"the table {path} was written by {before}, and the sink is now {_described(sink.identity)}: the rows that "
        "are there would be read wrongly.",
        fix="declare the sink as it was; or declare a stream of a new name with the new sink, which fills its table "
        "from the sources; or compute this one again: tidemill rebuild, with the name of the stream.",
    )


def _described(identity: Mapping[str, object]) -> str:
    """Return a recorded sink as it is declared: `DeltaMerge(keys=['id'], sequence_by='seq', scd_type=1)`."""
    fields = (f"{name}={value!r}" for name, value in identity.items() if name != "kind" and value is not None)
    return f"{identity.get('kind')}({', '.join(fields)})"

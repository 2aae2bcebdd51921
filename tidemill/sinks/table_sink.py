"""Base of the Delta sinks: a table is created when missing, widened by new columns, refused when it does not fit."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from tidemill.definitions.columns import DELETED
from tidemill.definitions.sink import SinkBatch, SinkContext, TableSink, Transaction, transaction_app_id
from tidemill.errors import DefinitionError, SchemaChangeError, TerminalError
from tidemill.text.names import sql_identifier

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructField, StructType

    from tidemill.definitions.options import OutputMode
    from tidemill.storage.table_ref import TableRef

_EXPIRY = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True)
class DeltaSink(TableSink):
    """Base of the table sinks; a kind adds what its rows mean and how it commits them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        kind, declared = type(self).__name__, {field.name for field in fields(self)}
        for name in ("keys", "except_columns", "partition_by", "cluster_by"):
            if name in declared:
                columns = column_names(getattr(self, name), field=f"{kind}: {name}")
                object.__setattr__(self, name, columns)
        if self.partition_by and self.cluster_by:
            raise DefinitionError(
                f"{kind}: a table has partition_by or cluster_by, not both.", code="arguments-conflict"
            )

    def refuses(self, output_mode: "OutputMode") -> str | None:
        """Refuse the whole result, of which the table would keep rows that have left it."""
        if output_mode != "complete":
            return None
        return (
            f"a {type(self).__name__}, which would keep rows that have left the result: use DeltaOverwrite()."
        )

    def check_recorded(self, context: SinkContext, recorded: Mapping[str, object]) -> None:
        """Check that a table of a recorded identity can be continued.

        Raises:
            SchemaChangeError: It was written by another kind of sink, or its rows depend on other columns.
        """
        if dict(recorded) != self.identity and was_written(context.table):
            raise self._of_another(context.table, _described(recorded))

    def check(self, context: SinkContext, output: "StructType") -> None:
        """Check that the table fits an output with these columns.

        Raises:
            SchemaChangeError: A column is missing or has another type, or is new and `merge_schema` is off; or the
                table belongs to another kind of sink, or has other partitions.
            TerminalError: The table forgets transactions, so a repeat could count twice.
        """
        self._new_columns(context.table, output)

    def prepare(self, spark: "SparkSession", context: SinkContext, output: "StructType") -> None:
        """Make the table ready for an output with these columns.

        New columns are added (they are NULL in the rows that are there). A table that never had a row or a batch is
        recreated if it does not fit.

        Raises:
            TidemillError: What `check` raises.
        """
        path = context.table
        new = self._new_columns(path, output)
        if new is not None:
            add_columns(spark, path, new)
            return
        # Another schema in the same log would stop each reader, because readers begin at version 0.
        path.delete()
        columns = ", ".join(map(_column, self.table_schema(output).fields))
        spark.sql(f"CREATE TABLE {path.sql} ({columns}) USING delta {self.create_options()}")

    def last_batch(self, context: SinkContext, query_id: str) -> int | None:
        """Return the newest batch of a query that the table has; None where it has none."""
        table = context.table.open()
        return None if table is None else table.transaction_version(transaction_app_id(query_id, self.name))

    def write(self, rows: "DataFrame", batch: SinkBatch) -> None:
        """Write one micro-batch in one commit, which Delta skips where the table has it already."""
        identity = batch.identity
        transaction = Transaction(transaction_app_id(identity.query_id, self.name), identity.batch_id)
        self.commit(rows, batch.context.table, transaction, batch.metadata)

    def table_schema(self, output: "StructType") -> "StructType":
        """Return the table's columns for an output with these columns: all of them."""
        return output

    def create_options(self) -> str:
        """Return the clauses of CREATE TABLE after `USING delta`: layout and table properties."""
        clauses = []
        if self.partition_by:
            clauses.append(f"PARTITIONED BY ({', '.join(map(sql_identifier, self.partition_by))})")
        if self.cluster_by:
            clauses.append(f"CLUSTER BY ({', '.join(map(sql_identifier, self.cluster_by))})")
        if self.change_feed:
            clauses.append("TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
        return " ".join(clauses)

    def replace_range(
        self,
        rows: "DataFrame",
        current: "DataFrame",  # noqa: ARG002 - a sink that identifies rows compares them
        table: "TableRef",
        *,
        condition: str,
        transaction: Transaction,
        user_metadata: str,
    ) -> None:
        """Replace the rows that meet the condition, and add the columns that are new."""
        (
            self._writer(rows, "overwrite", transaction, user_metadata)
            .option("replaceWhere", condition)
            .option("mergeSchema", "true")
            .option("partitionOverwriteMode", "static")  # whatever the session's conf is
            .save(table.uri)
        )

    def _writer(
        self, rows: "DataFrame", mode: str, transaction: Transaction, user_metadata: str
    ) -> "DataFrameWriter":
        """Return a writer of one commit, which Delta skips where the table has the transaction already."""
        return (
            rows.write.format("delta")
            .mode(mode)
            .option("txnAppId", transaction.app_id)
            .option("txnVersion", str(transaction.version))
            .option("userMetadata", user_metadata)
        )

    def _new_columns(self, path: "TableRef", output: "StructType") -> "list[StructField] | None":
        """Return the columns that the table needs for an output; None where the table must be created."""
        schema = self.table_schema(output)
        table = path.open()
        if table is None or (not self._fits(table, schema) and not was_written(path)):
            return None
        if _EXPIRY in table.metadata().configuration:
            raise TerminalError(
                f"the table {path} has the property {_EXPIRY}: it would forget which batches it has, and a repeated "
                "batch would be counted twice.",
                fix=f"ALTER TABLE {path.sql} UNSET TBLPROPERTIES ('{_EXPIRY}')",
                code="transactions-expire",
            )
        columns_now = schema_of(table)
        is_merge = DELETED in columns_now.names  # a manifest may not have recorded the sink
        if is_merge != (DELETED in schema.names):
            raise self._of_another(path, "a DeltaMerge" if is_merge else "a sink that does not merge")
        partitions = table.metadata().partition_columns
        if partitions != list(self.partition_by):
            raise SchemaChangeError(
                f"the sink has partition_by={list(self.partition_by)}, and the table {path} is partitioned by "
                f"{partitions or 'no column'}: it would stay so.",
                fix="declare partition_by as it was; or compute the stream again, which writes the table in the new "
                "layout: tidemill rebuild, with the name of the stream.",
                code="partitions-changed",
            )
        new = new_columns(columns_now, schema, path)
        if new and not self.merge_schema:
            raise SchemaChangeError(
                f"the output has the new column {new[0].name!r}, and the sink has merge_schema=False.",
                fix="drop the column in the function, or set merge_schema=True.",
                code="column-added",
            )
        return new

    def _fits(self, table: "DeltaTable", schema: "StructType") -> bool:
        """Return whether a table has exactly these columns, and the sink's partitions."""
        columns = list(map(_column, schema_of(table).fields))
        partitions = table.metadata().partition_columns
        return columns == list(map(_column, schema.fields)) and partitions == list(self.partition_by)

    def _of_another(self, path: "TableRef", before: str) -> SchemaChangeError:
        return SchemaChangeError(
            f"the table {path} was written by {before}, and the sink is now {_described(self.identity)}: the rows that "
            "are there would be read wrongly.",
            fix="declare the sink as it was; or declare a stream of a new name with the new sink, which fills its "
            "table from the sources; or compute this one again: tidemill rebuild, with the name of the stream.",
            code="sink-changed",
        )


def add_columns(spark: "SparkSession", path: "TableRef", columns: "Collection[StructField]") -> None:
    """Add columns to a table, NULL in the rows that are there; without columns there is no commit."""
    if columns:
        added = ", ".join(map(_column, columns))
        spark.sql(f"ALTER TABLE {path.sql} ADD COLUMNS ({added})")


def new_columns(table: "StructType", output: "StructType", path: "TableRef") -> "list[StructField]":
    """Return the columns that a table does not have.

    Raises:
        SchemaChangeError: A column of the table is missing in the output, or has another type there.
    """
    by_name = {field.name.lower(): field for field in output.fields}
    for column in table.fields:
        field = by_name.pop(column.name.lower(), None)
        kind = column.dataType.simpleString()
        if field is None:
            raise SchemaChangeError(
                f"the output no longer has the column {column.name!r} of the table {path.name}.",
                fix=f"keep the column in the function, for example as lit(None).cast('{kind}').",
                code="column-removed",
            )
        if field.dataType.simpleString() != kind:
            raise SchemaChangeError(
                f"the column {column.name!r} is {field.dataType.simpleString()} in the output and {kind} in the "
                f"table {path.name}.",
                fix=f"cast it to {kind} in the function, or give the new column another name.",
                code="column-type-changed",
            )
    return list(by_name.values())


def column_names(columns: object, *, field: str) -> tuple[str, ...]:
    """Return a sequence of column names as a tuple.

    Raises:
        DefinitionError: It is one string, has something other than names, or has a name twice.
    """
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise DefinitionError(f"{field} is {columns!r}: give a list of column names.")
    if not all(isinstance(column, str) and column for column in columns) or len(set(columns)) < len(columns):
        raise DefinitionError(f"{field} is {list(columns)!r}: give each column's name once.")
    return tuple(columns)


def run_in_transaction(
    spark: "SparkSession", statement: str, transaction: Transaction, user_metadata: str
) -> None:
    """Run one SQL statement that commits the transaction's identity with its change.

    Delta takes the identity of MERGE, UPDATE and DELETE from session confs (Delta docs, "Idempotent
    table writes in foreachBatch"); they are unset afterwards, because a second statement under the same
    identity would be skipped.
    """
    confs = {
        "spark.databricks.delta.write.txnAppId": transaction.app_id,
        "spark.databricks.delta.write.txnVersion": str(transaction.version),
        "spark.databricks.delta.commitInfo.userMetadata": user_metadata,
    }
    for key, value in confs.items():
        spark.conf.set(key, value)
    try:
        spark.sql(statement)
    finally:
        for key in confs:
            spark.conf.unset(key)


def _column(field: "StructField") -> str:
    return f"{sql_identifier(field.name)} {field.dataType.simpleString()}"


def schema_of(table: "DeltaTable") -> "StructType":
    """Return the columns of a table as Spark has them."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(table.schema().to_json()))


def was_written(path: "TableRef") -> bool:
    """Return whether a table ever had a row or a batch; True where its log no longer shows the beginning."""
    if path.log.commit(0) is None:
        return path.open() is not None
    return any(commit.adds_rows or commit.transactions for commit in path.log.commits(0))


def _described(identity: Mapping[str, object]) -> str:
    """Return a recorded sink as it is declared: `DeltaMerge(keys=['id'], sequence_by='seq', scd_type=1)`."""
    declared = (
        f"{name}={value!r}" for name, value in identity.items() if name != "kind" and value is not None
    )
    return f"{identity.get('kind')}({', '.join(declared)})"

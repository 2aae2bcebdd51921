"""Base of the sinks that write elsewhere, and the table of commits that a stream with only such sinks gets."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidemill.definitions.sink import CommitMetadata, Sink, Transaction
from tidemill.errors import TerminalError
from tidemill.sinks.table_sink import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tidemill.definitions.options import OutputMode
    from tidemill.storage.table_ref import TableRef


@dataclass(frozen=True)
class ExternalSink(Sink):
    """Base of the sinks that are not tables."""

    @property
    def commit_table(self) -> "CommitTable":
        """A table of the batches that the sinks have."""
        return CommitTable()


@dataclass(frozen=True)
class CommitTable(DeltaSink):
    """The main table of a stream without a table sink: one row per batch, when its other sinks have written it."""

    @property
    def has_rows(self) -> bool:
        """The rows of the output are elsewhere."""
        return False

    def refuses(self, output_mode: "OutputMode") -> str | None:
        """Take every output mode."""

    def table_schema(self, output: "StructType") -> "StructType":  # noqa: ARG002 - the same for every output
        """Return the columns of a batch: its identity, its rows, and when it was committed."""
        from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

        return StructType(
            [
                StructField("query_id", StringType()),
                StructField("batch_id", LongType()),
                StructField("rows", LongType()),
                StructField("committed_at", TimestampType()),
            ]
        )

    def commit(
        self, rows: "DataFrame", table: "TableRef", transaction: Transaction, metadata: CommitMetadata
    ) -> None:
        """Append the row of the batch, which Delta skips where the table has the transaction already."""
        from pyspark.sql import functions as F

        count = rows.count()
        row = rows.sparkSession.range(1).select(
            F.lit(transaction.app_id).alias("query_id"),
            F.lit(transaction.version).cast("bigint").alias("batch_id"),
            F.lit(count).cast("bigint").alias("rows"),
            F.current_timestamp().alias("committed_at"),
        )
        metadata = replace(metadata, rows_written=count)
        self._writer(row, "append", transaction, metadata.to_json()).save(table.uri)

    def record(self, table: "TableRef", transaction: Transaction, metadata: CommitMetadata) -> None:
        """Append the row of a batch that another query has written, without Spark; how many rows it had is unknown.

        A query without micro-batches may hold every core, and a job of Spark would wait for it.
        """
        import pyarrow as pa
        from deltalake import CommitProperties, write_deltalake
        from deltalake import Transaction as DeltaTransaction

        row = {
            "query_id": pa.array([transaction.app_id]),
            "batch_id": pa.array([transaction.version], pa.int64()),
            "rows": pa.nulls(1, pa.int64()),
            "committed_at": pa.array([datetime.now(UTC)], pa.timestamp("us", "UTC")),
        }
        write_deltalake(
            table.uri,
            pa.table(row),
            mode="append",
            storage_options=dict(table.store.delta_options()) or None,
            commit_properties=CommitProperties(
                custom_metadata={"userMetadata": metadata.to_json()},
                app_transactions=[DeltaTransaction(transaction.app_id, transaction.version)],
            ),
        )


def columns_unsuitable(what: str, *, fix: str) -> TerminalError:
    """Return the error of an output that a sink cannot write."""
    return TerminalError(what, fix=fix, code="sink-columns-unsuitable")

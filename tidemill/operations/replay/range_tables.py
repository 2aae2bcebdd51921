"""The tables of a stream and their staged twins: what a range has in each, and how the one replaces the other.

An append table gets the staged rows of the range for its own. In a merge table a row is the outcome of all changes of
its key, so the keys that have a row in the range, before or after, get all their staged rows: the current row (SCD 1)
or the history (SCD 2), and their tombstones.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.definitions.columns import BATCH, DELETED
from tidemill.definitions.sink import Transaction
from tidemill.operations.core.staging import operation_metadata
from tidemill.run.batch.writer import batch_column
from tidemill.sinks.replacement import comparable
from tidemill.sinks.table_sink import new_columns
from tidemill.text.names import sql_identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tidemill.definitions.sink import TableSink
    from tidemill.operations.replay.backfill_range import BackfillRange
    from tidemill.records.operation import Operation
    from tidemill.records.stream_records import StreamRecords


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTables:
    """The live and the staged tables of a stream, of which a range is replaced.

    Attributes:
        staged: The records of the staged tables.
    """

    spark: "SparkSession"
    span: "BackfillRange"
    live: "StreamRecords"
    staged: "StreamRecords"
    operation: "Operation"

    def compared(self, sink: "TableSink") -> dict[str, int]:
        """Return how the rows of a range would change: rows before and after, added, removed and changed.

        A row is the same where all its columns are, but for `_batch`. Only the rows of a merge table have an identity
        by which a changed row is known; elsewhere it counts as removed and added.

        Raises:
            SchemaChangeError: The live table has a column that the staged one has not, or has as another type.
        """
        before, after = self._before(sink), self._after(sink)
        new = new_columns(before.schema, after.schema, self.live.table(sink.name))
        after = after.drop(*(field.name for field in new)).select(*before.columns)
        old, now = _rows(comparable(before)), _rows(comparable(after))
        added = now if new else now.exceptAll(old)  # a new column changes each row
        numbers = {"rows_before": old.count(), "rows_after": now.count(), "rows_added": added.count()}
        numbers["rows_removed"] = numbers["rows_before"] - numbers["rows_after"] + numbers["rows_added"]
        changed = 0
        if identity := list(sink.row_identity):
            changed = added.join(
                old.select(*map(sql_identifier, identity)), on=identity, how="left_semi"
            ).count()
        numbers["rows_added"] -= changed
        numbers["rows_removed"] -= changed
        return numbers | {"rows_changed": changed}

    def replace(self, sink: "TableSink") -> None:
        """Replace the range of a live table in one commit, which Delta skips where the table has it already."""
        commit = self.commit(sink.name)
        sink.replace_range(
            self._after(sink),
            self._before(sink),
            self.live.table(sink.name),
            condition=self.span.condition,
            transaction=Transaction(commit["txnAppId"], int(commit["txnVersion"])),
            user_metadata=commit["userMetadata"],
        )

    def commit(self, sink: str) -> dict[str, str]:
        """Return the options of the commit to a table: its transaction and its `userMetadata`."""
        asked = self.operation.arguments
        return {
            "txnAppId": f"{self.operation.id}/{sink}",
            "txnVersion": "0",
            "userMetadata": operation_metadata(self.operation, begin=asked["begin"], end=asked["end"]),
        }

    def selecting(self, sink: "TableSink") -> "StructType":
        """Return the columns of a sink's table by which `of_range` selects rows."""
        from pyspark.sql.types import StructType

        schema = self._read(self.live, sink).schema
        return StructType([schema[name] for name in sink.key_columns or (self.span.column,)])

    def _before(self, sink: "TableSink") -> "DataFrame":
        """Return the live rows of the range, or of the keys of the range."""
        return self.of_range(sink, self._read(self.live, sink))

    def _after(self, sink: "TableSink") -> "DataFrame":
        """Return the staged rows, as rows of the live stream's last batch."""
        rows = self.of_range(sink, self._read(self.staged, sink))
        if BATCH not in rows.columns:
            return rows
        snapshot = self.live.snapshot()
        return rows.withColumn(BATCH, batch_column(snapshot.generation, snapshot.last_commit))

    def of_range(self, sink: "TableSink", rows: "DataFrame") -> "DataFrame":
        """Return the rows that are in the range of a sink's table, or have a key of the range."""
        if not sink.key_columns:
            return rows.where(self.span.condition)
        keys = list(map(sql_identifier, sink.key_columns))
        before, after = (
            self._read(records, sink).where(self.span.condition).select(*keys)
            for records in (self.live, self.staged)
        )
        return rows.join(before.union(after).distinct(), on=list(sink.key_columns), how="left_semi")

    def _read(self, records: "StreamRecords", sink: "TableSink") -> "DataFrame":
        return records.table(sink.name).read(self.spark)


def _rows(content: "DataFrame") -> "DataFrame":
    """Return the rows that readers of a table see."""
    return content.where(f"NOT {DELETED}") if DELETED in content.columns else content

"""The tombstones of a merge table that are older than a moment, where a column of theirs is a time."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidemill.definitions.columns import DELETED
from tidemill.definitions.sink import CommitMetadata, Transaction
from tidemill.sinks.table_sink import run_in_transaction
from tidemill.text.names import sql_identifier

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.dataset import Dataset
    from pyspark.sql import SparkSession

    from tidemill.definitions.sink import TableSink
    from tidemill.storage.table_ref import TableRef

_TIMES = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True, slots=True)
class Condition:
    """Which tombstones are old.

    Attributes:
        column: The column that is a time.
        type: Its Delta type.
    """

    column: str
    type: str
    before: datetime

    @property
    def sql(self) -> str:
        """The condition as Spark's SQL."""
        moment = self.before.astimezone(UTC)
        literal = f"{moment:%Y-%m-%d}" if self.type == "date" else f"{moment:%Y-%m-%d %H:%M:%S.%f}"
        zone = "Z" if self.type == "timestamp" else ""
        return f"{DELETED} AND {sql_identifier(self.column)} < CAST('{literal}{zone}' AS {self.type.upper()})"

    @property
    def value(self) -> Any:
        """The moment as a value of the column."""
        moment = self.before.astimezone(UTC)
        if self.type == "date":
            return moment.date()
        return moment if self.type == "timestamp" else moment.replace(tzinfo=None)


def condition_of(table: "DeltaTable", sink: "TableSink", before: datetime) -> Condition | None:
    """Return which tombstones of a merge table are older than a moment; None where no column shows their age."""
    types = {field.name: getattr(field.type, "type", None) for field in table.schema().fields}
    if DELETED not in types:
        return None
    for column in sink.tombstone_times:
        if types.get(column) in _TIMES:
            return Condition(column, str(types[column]), before)
    return None


def count_of(rows: "Dataset", condition: Condition) -> int:
    """Return how many tombstones of a table's rows meet a condition."""
    import pyarrow.compute as pc

    is_old = pc.field(DELETED) & (pc.field(condition.column) < pc.scalar(condition.value))
    return int(rows.count_rows(filter=is_old))


def delete(
    spark: "SparkSession", path: "TableRef", sink: "TableSink", before: datetime, operation: str
) -> None:
    """Remove old tombstones in one transaction, which Delta skips where the table has it already.

    Readers of the change feed do not see it: they leave out the changes of tombstones.
    """
    table = path.open()
    condition = None if table is None else condition_of(table, sink, before)
    if condition is None:
        return
    statement = f"DELETE FROM {path.sql} WHERE {condition.sql}"  # noqa: S608 - quoted
    metadata = CommitMetadata(batch_id=None, fingerprint="", operation=operation)
    run_in_transaction(spark, statement, Transaction(operation, 0), metadata.to_json())

"""Append to a Delta table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.definitions.sink import CommitMetadata, Sink, Transaction
from tidemill.errors import DefinitionError
from tidemill.text.names import sql_identifier

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class DeltaAppend(Sink):
    """Every output row is added to the table.

    Attributes:
        partition_by: Columns that the table is partitioned by.
        cluster_by: Columns that the table is clustered by (liquid clustering), instead of partitions.
        merge_schema: Whether new nullable columns of the output are added to the table.
    """

    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()
    merge_schema: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for what, columns in layout_columns("DeltaAppend", self.partition_by, self.cluster_by).items():
            object.__setattr__(self, what, columns)

    @property
    def native(self) -> bool:
        """An append needs no foreachBatch."""
        return True

    def table_schema(self, output: "StructType") -> "StructType":
        """Return the output's columns, all of them."""
        return output

    def create_options(self) -> str:
        """Return the layout, partitioned or clustered as declared."""
        return layout(self.partition_by, self.cluster_by)

    def write(
        self, rows: "DataFrame", table: "Path", transaction: Transaction, metadata: CommitMetadata
    ) -> None:
        """Append in one commit, which Delta skips where the table has the transaction already."""
        (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", transaction.app_id)
            .option("txnVersion", str(transaction.version))
            .option("userMetadata", metadata.to_json())
            .save(str(table))
        )


def column_names(columns: object, *, what: str) -> tuple[str, ...]:
    """Return a sequence of column names as a tuple.

    Raises:
        DefinitionError: It is one string, has something other than names, or has a name twice.
    """
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise DefinitionError(f"{what} is {columns!r}: give a list of column names.")
    if not all(isinstance(column, str) and column for column in columns) or len(set(columns)) < len(columns):
        raise DefinitionError(f"{what} is {list(columns)!r}: give each column's name once.")
    return tuple(columns)


def layout_columns(kind: str, partition_by: object, cluster_by: object) -> dict[str, tuple[str, ...]]:
    """Return the columns of a sink's layout by field.

    Raises:
        DefinitionError: A field is not a list of column names, or both have columns.
    """
    fields = {"partition_by": partition_by, "cluster_by": cluster_by}
    columns = {what: column_names(names, what=f"{kind}: {what}") for what, names in fields.items()}
    if all(columns.values()):
        raise DefinitionError(f"{kind}: a table has partition_by or cluster_by, not both.")
    return columns


def layout(partition_by: Sequence[str], cluster_by: Sequence[str]) -> str:
    """Return the clause of CREATE TABLE for the layout; empty where there is none."""
    if partition_by:
        return f"PARTITIONED BY ({', '.join(map(sql_identifier, partition_by))})"
    if cluster_by:
        return f"CLUSTER BY ({', '.join(map(sql_identifier, cluster_by))})"
    return ""

"""Replace a Delta table with each micro-batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.definitions.sink import CommitMetadata, Sink, Transaction
from tidemill.sinks.delta_append import layout, layout_columns

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class DeltaOverwrite(Sink):
    """The table is the output of the last batch, for output mode `complete`: each batch replaces it in one commit.

    Readers see the output before a batch or after it. Another stream reads the table as a snapshot, `.static()`.

    Attributes:
        partition_by: Columns that the table is partitioned by.
        cluster_by: Columns that the table is clustered by (liquid clustering), instead of partitions.
    """

    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for what, columns in layout_columns("DeltaOverwrite", self.partition_by, self.cluster_by).items():
            object.__setattr__(self, what, columns)

    @property
    def batch_is_whole_result(self) -> bool:
        """Each batch replaces the table."""
        return True

    @property
    def native(self) -> bool:
        """Spark's own Delta sink replaces the table in complete mode."""
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
        """Replace all rows in one commit, which Delta skips where the table has the transaction already."""
        (
            rows.write.format("delta")
            .mode("overwrite")
            .option(
                "replaceWhere", "true"
            )  # all rows; without a condition Delta drops the table's clustering
            .option("partitionOverwriteMode", "static")  # whatever the session's conf is
            .option("txnAppId", transaction.app_id)
            .option("txnVersion", str(transaction.version))
            .option("userMetadata", metadata.to_json())
            .save(str(table))
        )

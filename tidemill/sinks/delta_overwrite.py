"""Replace a Delta table with each micro-batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.definitions.sink import CommitMetadata, Transaction
from tidemill.sinks.table_sink import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemill.definitions.options import OutputMode
    from tidemill.storage.table_ref import TableRef


@dataclass(frozen=True)
class DeltaOverwrite(DeltaSink):
    """The table is the output of the last batch, for output mode `complete`: each batch replaces it in one commit.

    Readers see the output before a batch or after it. Another stream reads the table as a snapshot, `.static()`.

    Attributes:
        partition_by: Columns that the table is partitioned by.
        cluster_by: Columns that the table is clustered by (liquid clustering), instead of partitions.
    """

    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()

    @property
    def batch_is_whole_result(self) -> bool:
        """Each batch replaces the table."""
        return True

    @property
    def native(self) -> bool:
        """Spark's own Delta sink replaces the table in complete mode."""
        return True

    def refuses(self, output_mode: "OutputMode") -> str | None:
        """Refuse rows that are not the whole result."""
        if output_mode == "complete":
            return None
        return (
            "a DeltaOverwrite, which would keep only those of the last batch: use output_mode='complete', or "
            "DeltaAppend() or DeltaMerge(keys=...)."
        )

    def commit(
        self, rows: "DataFrame", table: "TableRef", transaction: Transaction, metadata: CommitMetadata
    ) -> None:
        """Replace all rows in one commit, which Delta skips where the table has the transaction already."""
        (
            self._writer(rows, "overwrite", transaction, metadata.to_json())
            .option(
                "replaceWhere", "true"
            )  # all rows; without a condition Delta drops the table's clustering
            .option("partitionOverwriteMode", "static")  # whatever the session's conf is
            .save(table.uri)
        )

"""Append to a Delta table."""

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
class DeltaAppend(DeltaSink):
    """Every output row is added to the table.

    Attributes:
        partition_by: Columns that the table is partitioned by.
        cluster_by: Columns that the table is clustered by (liquid clustering), instead of partitions.
        merge_schema: Whether new nullable columns of the output are added to the table.
    """

    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()
    merge_schema: bool = True

    @property
    def native(self) -> bool:
        """An append needs no foreachBatch."""
        return True

    def refuses(self, output_mode: "OutputMode") -> str | None:
        """Refuse rows that replace earlier ones."""
        if output_mode == "update":
            return "a DeltaAppend, which cannot take them: use DeltaMerge(keys=...)."
        return super().refuses(output_mode)

    def commit(
        self, rows: "DataFrame", table: "TableRef", transaction: Transaction, metadata: CommitMetadata
    ) -> None:
        """Append in one commit, which Delta skips where the table has the transaction already."""
        self._writer(rows, "append", transaction, metadata.to_json()).save(table.uri)

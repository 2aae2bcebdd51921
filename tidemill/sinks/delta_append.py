"""Append to a Delta table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.definitions.sink import CommitMetadata, Sink, Transaction
from tidemill.definitions.stream import Stream
from tidemill.errors import DefinitionError
from tidemill.sinks.shared_append import SharedAppend
from tidemill.sinks.table_sink import DeltaSink
from tidemill.text.names import MAIN_SINK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemill.definitions.options import OutputMode
    from tidemill.storage.table_ref import TableRef


@dataclass(frozen=True)
class DeltaAppend(DeltaSink):
    """Every output row is added to the table.

    With `into=other_stream` the rows are added to the table of another stream, whose own rows come from elsewhere:
    readers see one table. Each stream keeps its own checkpoint, and a batch is one transaction with its identity. The
    other stream creates the table, so it runs first, and readers run after both. Its columns are those of the table;
    one that this stream lacks is NULL. If this is the only sink of a stream, the stream has a table of its commits,
    like a stream without a table sink.

    While others append to its table, a stream is not backfilled, rebuilt, rewound or reset, which would remove their
    rows. A rewind and a reset of the stream that appends let it append rows again.

    Attributes:
        partition_by: Columns that the table is partitioned by.
        cluster_by: Columns that the table is clustered by (liquid clustering), instead of partitions.
        merge_schema: Whether new nullable columns of the output are added to the table.
        into: A stream to whose table the rows are appended; None: the stream has a table of its own.
    """

    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()
    merge_schema: bool = True
    into: "Stream | None" = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.into is None:
            return
        if not isinstance(self.into, Stream):
            raise DefinitionError(f"DeltaAppend: into is {self.into!r}; give a stream.")
        if not self.into.main.has_rows or not self.into.main.only_appends:
            raise DefinitionError(
                f"DeltaAppend: into is {self.into.name}, whose main sink does not append rows to a table of its own.",
                code="sink-unsuitable",
            )
        if self.partition_by or self.cluster_by or self.table:
            raise DefinitionError(
                f"DeltaAppend: the table of {self.into.name} has the partition_by, the cluster_by and the name of that "
                "stream; leave them out.",
                code="arguments-conflict",
            )

    @property
    def resolved(self) -> "Sink":
        """The sink that appends to the table of the other stream, if there is one."""
        if self.into is None:
            return self
        name = self.into.name.stream if self.name == MAIN_SINK else self.name
        return SharedAppend(self.into.name, self.into.main, name=name)

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

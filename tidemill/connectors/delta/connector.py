"""How Spark reads a Delta table: any table by its path, and the table of another stream."""

from typing import TYPE_CHECKING

from tidemill.checkpoint import SourceOffset
from tidemill.connectors.connector import Connector, SourceContext
from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.delta.source import DeltaSource
from tidemill.definitions.columns import BOOKKEEPING, DELETED
from tidemill.definitions.source import MAX_FILES_PER_BATCH, StreamTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamReader

_STARTING = frozenset({"startingversion", "startingtimestamp"})
# The snapshot that a new reader begins with arrives in the order of its files: in several batches a watermark
# would drop rows as late, and VACUUM could remove files between two of them.
_ONE_BATCH = str(2**31 - 1)


class DeltaConnector(Connector[DeltaSource | StreamTable]):
    """Delta tables (Delta docs, "Table streaming reads and writes")."""

    kind = "delta"

    def parse(self, offset: SourceOffset) -> DeltaPosition | None:
        """Return the position in an offset; None where it is of another kind."""
        return DeltaPosition.of(offset)

    def load(self, source: DeltaSource | StreamTable, context: SourceContext, name: str) -> "DataFrame":
        """Return the rows of a table; only new ones where it streams."""
        if isinstance(source, StreamTable):
            return self._load_stream(source, context, name)
        return self._load_table(source, context, name)

    def _load_table(self, source: DeltaSource, context: SourceContext, name: str) -> "DataFrame":
        """Return a table's rows; only new ones where it streams."""
        if source.mode == "static":
            return snapshot(context, source.path, context.pins[name])
        start = context.starts.get(name, "declared")
        options = dict(source.options)
        if start != "declared":
            options = {key: value for key, value in options.items() if key.lower() not in _STARTING}
        given = {key.lower() for key in options}
        reader = context.spark.readStream.name(name).format("delta").options(**options)
        if isinstance(start, int):
            reader = reader.option("startingVersion", str(start))
        if source.mode == "changes":
            reader = reader.option("readChangeFeed", "true")
        begins_with_snapshot = start == "declared" and not given & _STARTING
        unlimited = source.max_files_per_batch == MAX_FILES_PER_BATCH and source.max_bytes_per_batch is None
        if begins_with_snapshot and unlimited:
            return reader.option("maxFilesPerTrigger", _ONE_BATCH).load(source.path)
        return _limited(reader, source.max_files_per_batch, source.max_bytes_per_batch).load(source.path)

    def _load_stream(self, source: StreamTable, context: SourceContext, name: str) -> "DataFrame":
        """Return the table's rows, without tombstones."""
        table = context.target.lake.table(source.stream)
        if source.mode == "static":
            rows = snapshot(context, str(table), context.pins[name])
            if source.is_merge:
                rows = rows.where(f"NOT {DELETED}")
        else:
            reader = context.spark.readStream.name(name).format("delta")
            start = context.starts.get(name, "snapshot")  # run/new_readers.py decides
            if start == "snapshot":
                reader = reader.option("maxFilesPerTrigger", _ONE_BATCH)
            else:
                reader = _limited(reader, source.max_files_per_batch, source.max_bytes_per_batch)
            if isinstance(start, int):
                reader = reader.option("startingVersion", str(start))
            if source.mode == "changes":
                rows = reader.option("readChangeFeed", "true").load(str(table))
                if source.is_merge:
                    rows = _without_tombstones(rows)
            else:
                # The guard judges commits that removed or changed rows (run/guard.py).
                rows = reader.option("skipChangeCommits", "true").load(str(table))
        return rows.drop(*BOOKKEEPING, DELETED)


def snapshot(context: SourceContext, path: str, version: int) -> "DataFrame":
    """Return a table as of one version."""
    return context.spark.read.format("delta").option("versionAsOf", str(version)).load(path)


def _limited(
    reader: "DataStreamReader", max_files_per_batch: int, max_bytes_per_batch: int | None
) -> "DataStreamReader":
    reader = reader.option("maxFilesPerTrigger", str(max_files_per_batch))
    if max_bytes_per_batch:
        reader = reader.option("maxBytesPerTrigger", str(max_bytes_per_batch))
    return reader


def _without_tombstones(changes: "DataFrame") -> "DataFrame":
    """Return the changes of what readers of the table see; the sink writes none across (sinks/changes.py)."""
    return changes.where(f"NOT {DELETED}")

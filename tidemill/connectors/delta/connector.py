"""How Spark reads a Delta table: any table by its path or its name, and the table of another stream."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidemill.checkpoint import SourceOffset
from tidemill.connectors.answers import (
    SOURCE,
    TABLE_NAME,
    Continuation,
    Expiry,
    ExternalData,
    Period,
    SourceSpan,
    Start,
)
from tidemill.connectors.backlog import Backlog
from tidemill.connectors.connector import Binding, Connector, Reading, SourceContext
from tidemill.connectors.delta.backlog import TableReading, waiting_versions
from tidemill.connectors.delta.first_version import first_version
from tidemill.connectors.delta.location import located_table, table_of
from tidemill.connectors.delta.position import DeltaPosition, at_version
from tidemill.connectors.delta.retention import table_expiry
from tidemill.connectors.delta.rows import newest_in_versions, rows_of_versions, whole_versions
from tidemill.connectors.delta.source import DeltaSource
from tidemill.connectors.delta.span import table_span
from tidemill.connectors.delta.stand_in import stand_in
from tidemill.connectors.external_keys import catalog_key, folder_key
from tidemill.definitions.columns import BOOKKEEPING, DELETED
from tidemill.definitions.source import MAX_FILES_PER_BATCH, StreamTable
from tidemill.errors import TerminalError
from tidemill.storage.locations import is_same_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from tidemill.storage.lake import Lake
    from tidemill.storage.table_ref import TableRef
    from tidemill.target.target import Target

_STARTING = frozenset({"startingversion", "startingtimestamp"})
_NEXT_VERSION = "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled"
# The snapshot that a new reader begins with arrives in the order of its files: in several batches a watermark
# would drop rows as late, and VACUUM could remove files between two of them.
_ONE_BATCH = str(2**31 - 1)


class DeltaConnector(Connector[DeltaSource | StreamTable]):
    """Delta tables (Delta docs, "Table streaming reads and writes")."""

    kind = "delta"
    position = DeltaPosition

    def table(self, source: DeltaSource | StreamTable, lake: "Lake") -> "TableRef | None":
        """Return the table's folder; None of a name in a catalog whose location is not recorded yet."""
        return located_table(source, lake)

    def describe_binding(self, binding: Binding) -> str:
        """Return the table of a catalog and its location."""
        return f"{binding['table']} at {binding['location']}"

    def difference(self, source: DeltaSource | StreamTable, recorded: Binding, now: Binding) -> str | None:
        """Return how a table of a catalog differs, by its location: its name is only how it was found."""
        if "location" in recorded and is_same_location(recorded["location"], now["location"]):
            return None
        return self.changed(recorded, now)

    def continuation(
        self, source: DeltaSource | StreamTable, reading: Reading, now: Binding, *, from_beginning: bool
    ) -> Continuation | None:
        """Return that a table continues at its new location, where it is the same table with the same commits."""
        at, table = DeltaPosition.of(reading.offset), reading.target.lake.table_at(now["location"])
        if from_beginning or at is None or reading.offset is None:
            return None
        opened = table.open()
        if opened is None or str(opened.metadata().id) != at.reservoir_id:
            return None
        if opened.version() + 1 < at.version:
            raise TerminalError(
                f"the table at {now['location']} ends at version {opened.version()}, and its source {reading.name!r} "
                f"has read up to version {at.version - 1}: it is an older copy.",
                fix="copy the table with all of its versions.",
                code="rebind-not-possible",
            )
        return Continuation(
            effects=(
                f"It is the same table (id {at.reservoir_id}): reading continues at version {at.version}.",
            ),
            offset=reading.offset.raw,
        )

    def first_version(
        self, source: DeltaSource | StreamTable, lake: "Lake", recorded: int | None
    ) -> int | None:
        """Return the version that `latest` or a time stands for."""
        table = located_table(source, lake)
        if isinstance(source, StreamTable) or table is None:
            return None
        return first_version(table, source.options, recorded)

    def backlog(self, source: DeltaSource | StreamTable, reading: Reading) -> Backlog:
        """Return the versions from the first unread one on that changes data."""
        table = located_table(source, reading.target.lake)
        if table is None:
            return Backlog(
                1, "unknown", f"the first run asks the catalog for the location of {source.describe()}"
            )
        if isinstance(source, StreamTable):
            how = TableReading(
                changes=source.reads_changes,
                guarded=source.mode == "append",
                accepted=reading.record.accepted_versions,
                snapshot=reading.record.start == "snapshot",
            )
        else:
            how = TableReading(
                changes=source.reads_changes,
                options=source.options,
                snapshot=True,
                first=self.first_version(source, reading.target.lake, reading.record.first_version)
                if reading.offset is None
                else None,
            )
        return waiting_versions(table, reading.offset, what=source.describe(), reading=how)

    def expiry(self, source: DeltaSource | StreamTable, reading: Reading) -> Expiry | None:
        """Return when the first unread commit, or one of its files, may be removed."""
        position = DeltaPosition.of(reading.offset)
        if position is None:
            return None
        return table_expiry(table_of(source, reading.target.lake), position, changes=source.reads_changes)

    def rows(self, source: DeltaSource | StreamTable, reading: Reading, end: SourceOffset) -> int | None:
        """Return the rows that commits of a stream's table have added, where whole versions are read."""
        versions = _versions_read(source, reading, end)
        return None if versions is None else rows_of_versions(table_of(source, reading.target.lake), versions)

    def newest_event(
        self, source: DeltaSource | StreamTable, reading: Reading, end: SourceOffset
    ) -> int | None:
        """Return the newest event time by the statistics of the files, where whole versions are read."""
        versions = _versions_read(source, reading, end)
        if versions is None or source.watermark is None:
            return None
        table = table_of(source, reading.target.lake)
        return newest_in_versions(table, versions, source.watermark.column)

    def span(self, source: DeltaSource | StreamTable, reading: Reading, period: Period) -> SourceSpan | None:
        """Return the versions of a period."""
        if reading.offset is None or DeltaPosition.of(reading.offset) is None:
            return None
        return table_span(source, reading.target.lake, reading.offset, period)

    def now(self, source: DeltaSource | StreamTable, reading: Reading) -> Start:
        """Return the newest version."""
        table = table_of(source, reading.target.lake).open()
        if table is None:
            fix = "correct the path, or create the table."
            if source.upstream is not None:
                fix = f"tidemill run {source.upstream}"
            raise TerminalError(f"{source.describe()} does not exist.", fix=fix, code="source-table-missing")
        at = DeltaPosition.of(reading.offset)
        begin = 0 if at is None else at.version
        end = table.version() + 1
        fields = {
            "sourceVersion": 1,
            "reservoirId": str(table.metadata().id),
            "reservoirVersion": end,
            "index": -1,
            "isStartingVersion": False,
        }
        skipped = f"versions {begin} to {end - 1} of {source.describe()}" if end > begin else ""
        return Start(offset=json.dumps(fields, separators=(",", ":")), skipped=skipped)

    def start_at(self, reading: Reading, wanted: Any) -> Start:
        """Return a version."""
        position = DeltaPosition.of(reading.offset)
        if position is None or reading.offset is None or reading.offset.raw is None:
            return super().start_at(reading, wanted)
        if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 0:
            raise TerminalError(
                f"its source {reading.name!r} is a table, and {wanted!r} is no version.",
                fix="give a number.",
                code="start-invalid",
            )
        now = position.version
        return Start(
            offset=at_version(reading.offset.raw, wanted),
            skipped=f"versions {now} to {wanted - 1} of {reading.name}" if wanted > now else "",
            doubled=f"versions {wanted} to {now - 1} of {reading.name}" if wanted < now else "",
        )

    def fits(self, source: DeltaSource | StreamTable, reading: Reading) -> bool:
        """Return whether the id of the table is the one that was read."""
        position, table = DeltaPosition.of(reading.offset), table_of(source, reading.target.lake).open()
        return (
            position is not None and table is not None and str(table.metadata().id) == position.reservoir_id
        )

    def has_read(self, reading: Reading) -> str:
        """Return the id of the table."""
        position = DeltaPosition.of(reading.offset)
        return "" if position is None else f"the Delta table with the id {position.reservoir_id}"

    def external(self, source: DeltaSource | StreamTable, target: "Target | None") -> Iterator[ExternalData]:
        """Yield a table that no stream writes."""
        if not isinstance(source, DeltaSource):
            return
        name = source.table or source.path
        metadata = {SOURCE: name} | ({TABLE_NAME: name} if source.table else {})
        yield ExternalData(
            path=catalog_key(name) if source.table else folder_key("delta", name),
            kind="deltalake",
            description=f"Delta table {name}.",
            metadata=metadata,
        )

    def load(self, source: DeltaSource | StreamTable, context: SourceContext, name: str) -> "DataFrame":
        """Return the rows of a table; only new ones where it streams."""
        if isinstance(source, StreamTable):
            return self._load_stream(source, context, name)
        return self._load_table(source, context, name)

    def _load_table(self, source: DeltaSource, context: SourceContext, name: str) -> "DataFrame":
        """Return a table's rows; only new ones where it streams."""
        table = table_of(source, context.target.lake)
        if source.mode == "static":
            return table.read(context.spark, versionAsOf=str(context.pins[name]))
        start = context.starts.get(name, "declared")
        options = dict(source.options)
        if start != "declared":
            options = {key: value for key, value in options.items() if key.lower() not in _STARTING}
        given = {key.lower() for key in options}
        reader = context.spark.readStream.name(name).format("delta").options(**options)
        if isinstance(start, int):
            # Delta otherwise refuses the version after the newest one, with which a reader of new rows begins.
            context.spark.conf.set(_NEXT_VERSION, "true")
            reader = reader.option("startingVersion", str(start))
        if source.mode == "changes":
            reader = reader.option("readChangeFeed", "true")
        begins_with_snapshot = start == "declared" and not given & _STARTING
        unlimited = source.max_files_per_batch == MAX_FILES_PER_BATCH and source.max_bytes_per_batch is None
        if begins_with_snapshot and unlimited:
            return reader.option("maxFilesPerTrigger", _ONE_BATCH).load(table.uri)
        return _limited(reader, source.max_files_per_batch, source.max_bytes_per_batch).load(table.uri)

    def _load_stream(self, source: StreamTable, context: SourceContext, name: str) -> "DataFrame":
        """Return the table's rows, without tombstones."""
        table = context.target.lake.table(source.stream)
        if source.stream in context.stand_ins:
            rows = stand_in(source, context.stand_ins[source.stream], context.spark, name)
        elif source.mode == "static":
            rows = table.read(context.spark, versionAsOf=str(context.pins[name]))
            if source.is_merge:
                rows = rows.where(f"NOT {DELETED}")
        else:
            reader = context.spark.readStream.name(name).format("delta")
            start = context.starts.get(name, "snapshot")  # run/tables/new_readers.py decides
            if start == "snapshot":
                reader = reader.option("maxFilesPerTrigger", _ONE_BATCH)
            else:
                reader = _limited(reader, source.max_files_per_batch, source.max_bytes_per_batch)
            if isinstance(start, int):
                reader = reader.option("startingVersion", str(start))
            if source.mode == "changes":
                rows = reader.option("readChangeFeed", "true").load(table.uri)
                if source.is_merge:
                    rows = _without_tombstones(rows)
            else:
                # The guard judges commits that removed or changed rows (run/tables/guard.py).
                rows = reader.option("skipChangeCommits", str(not context.stops_at_removed).lower()).load(
                    table.uri
                )
        return rows.drop(*BOOKKEEPING, DELETED)


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


def _versions_read(source: DeltaSource | StreamTable, reading: Reading, end: SourceOffset) -> range | None:
    """Return the versions of a stream's table up to an offset; None where more or less than whole ones are read."""
    start = DeltaPosition.of(reading.offset)
    begins_with_log = start is not None or reading.record.start == "log"
    if not isinstance(source, StreamTable) or source.mode != "append" or not begins_with_log:
        return None
    return whole_versions(start, DeltaPosition.of(end))

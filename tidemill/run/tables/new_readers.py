"""How a new reader of a table begins: with version 0 of its log, or with a snapshot.

From version 0 on, a reader gets the rows in the order in which they were written, and each batch is small. It works
only while everything that was ever added can still be read: OPTIMIZE and VACUUM remove files, the log's cleanup
removes commits, and an append-only reader cannot read past a commit that removed rows. In these cases the reader
begins with a snapshot. The snapshot is one batch, because a watermark would drop rows of a snapshot that is read
in several, and because VACUUM could remove files between two of them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemill.connectors.connector import StartingPoint
from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.registry import connector_of
from tidemill.connectors.source_record import SourceRecord, Start
from tidemill.storage.delta_log import by_kind
from tidemill.storage.table_ref import TableRef

if TYPE_CHECKING:
    from tidemill.checkpoint import Tail
    from tidemill.definitions.stream import Stream
    from tidemill.storage.lake import Lake

_FEED = "delta.enableChangeDataFeed"


def with_starts(
    stream: "Stream", lake: "Lake", tail: "Tail", records: Mapping[str, SourceRecord]
) -> dict[str, SourceRecord]:
    """Return the records of a stream's sources, with a start for each reader of a table that has none.

    A start is decided once: a repeat of the first batch must begin where the batch began, and a source that begins
    with new rows must not begin again where a run finds none.
    """
    started = dict(records)
    for name, source in stream.sources.items():
        record = started.get(name, SourceRecord())
        planned = tail.planned(name)
        if not source.streaming or (planned is not None and planned.raw is not None):
            continue
        if source.upstream is None:
            first = connector_of(source).first_version(source, lake, record.first_version)
            if first != record.first_version:
                started[name] = replace(record, first_version=first)
        else:
            table = lake.table(source.upstream)
            start: Start = "log" if reads_from_version_0(table, changes=source.reads_changes) else "snapshot"
            version = table.log.latest_version() if start == "snapshot" else None
            started[name] = replace(record, start=start, start_version=version)
    return started


def starting_points(
    stream: "Stream", lake: "Lake", tail: "Tail", records: Mapping[str, SourceRecord]
) -> dict[str, StartingPoint]:
    """Return where each reader of a table begins in the next query.

    Delta asks for it as long as the checkpoint has one batch of the source, and then checks that it still exists: a
    committed batch is not read again, so its end does as well as its beginning, which the log's cleanup removes.
    """
    points: dict[str, StartingPoint] = {}
    for name, source in stream.sources.items():
        table = connector_of(source).table(source, lake)
        if table is None or not source.streaming:
            continue
        at = DeltaPosition.of(tail.committed(name))
        if at is not None:
            next_is_there = not at.is_starting and table.log.has(at.version)
            points[name] = at.version if next_is_there else "begun"
        elif (first := records.get(name, SourceRecord()).first_version) is not None:
            points[name] = first
        elif source.upstream is not None:
            points[name] = "snapshot" if records.get(name, SourceRecord()).start == "snapshot" else 0
        else:
            points[name] = "declared"
    return points


def reads_from_version_0(table: TableRef, *, changes: bool) -> bool:
    """Return whether a new reader can read every commit of a table from version 0 on.

    Args:
        changes: Whether the change data feed is read.
    """
    head = table.log.latest_version()
    if head is None:
        return True  # a table that does not exist yet has no history
    removed: set[str] = set()
    for version in range(head + 1):
        actions = table.log.actions(version)
        if actions is None:
            return False
        for kind, file in by_kind(actions):
            if kind == "metaData" and changes and file.get("configuration", {}).get(_FEED) != "true":
                return False
            if kind == "remove":
                if not changes and file.get("dataChange"):
                    return False
                removed.add(file["path"])
            if kind == "cdc" and changes:
                removed.add(file["path"])
    # What was not removed is in the table, and so on the disk.
    return not table.missing(removed)

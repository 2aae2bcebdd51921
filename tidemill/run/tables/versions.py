"""The versions of the tables that a run reads: they exist, static ones are pinned, and what was read is unchanged.

A table that was restored from a backup and written again has the same id, and its versions have the same numbers and
other rows. The offset of a reader does not show it: the rows of the versions that it counts as read would be lost.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.registry import connector_of
from tidemill.connectors.source_record import SourceRecord
from tidemill.errors import DataLossError, TerminalError

if TYPE_CHECKING:
    from tidemill.checkpoint import Tail
    from tidemill.definitions.source import Source
    from tidemill.definitions.stream import Stream
    from tidemill.storage.lake import Lake
    from tidemill.storage.table_ref import TableRef
    from tidemill.text.names import StreamName


def check_read_commits(stream: "Stream", lake: "Lake", records: Mapping[str, SourceRecord]) -> None:
    """Check that the newest commit that each reader has read is still the same.

    A commit that the log's cleanup has removed cannot be compared.

    Raises:
        DataLossError: It is another one.
    """
    for name, table in _tables(stream, lake):
        record = records.get(name, SourceRecord())
        if record.read_version is None:
            continue
        now = table.log.checksum(record.read_version)
        if now is not None and now != record.read_commit:
            raise DataLossError(
                f"version {record.read_version} of the table in {table} is another commit than the one that its "
                f"source {name!r} has read: an older copy of the table was restored, and written again.",
                stream=stream.name,
                lost="Rows of commits that count as read, and were not, would be missing in this stream.",
                fix="restore the newest copy; or compute the stream again from the table: "
                f"tidemill rebuild {stream.name}",
                code="upstream-restored",
            )


def with_read_commits(
    stream: "Stream", lake: "Lake", tail: "Tail", records: Mapping[str, SourceRecord]
) -> dict[str, SourceRecord]:
    """Return the records of a stream's sources, with the newest commit that each reader of a table has read."""
    now = dict(records)
    for name, table in _tables(stream, lake):
        at = DeltaPosition.of(tail.committed(name))
        if at is None:
            continue
        version = at.version if at.index >= 0 or at.is_starting else at.version - 1
        checksum = table.log.checksum(version)
        if checksum is not None:
            record = now.get(name, SourceRecord())
            now[name] = replace(record, read_version=version, read_commit=checksum)
    return now


def _tables(stream: "Stream", lake: "Lake") -> "Iterator[tuple[str, TableRef]]":
    for name, source in stream.sources.items():
        table = connector_of(source).table(source, lake)
        if table is not None and source.streaming:
            yield name, table


def sources_without_table(stream: "Stream", lake: "Lake") -> "dict[StreamName, Source]":
    """Return the sources of a stream that are tables of other streams and do not exist yet, by those streams."""
    return {
        source.upstream: source
        for source in stream.sources.values()
        if source.upstream is not None and lake.table(source.upstream).log.latest_version() is None
    }


def current_versions(
    stream: "Stream", lake: "Lake", stand_ins: "Collection[StreamName]" = ()
) -> dict[str, int]:
    """Return the newest Delta version of each static reading of a stream.

    Args:
        stand_ins: The streams whose tables need not exist.

    Raises:
        TerminalError: A table that is read does not exist yet.
    """
    versions = {}
    for name, source in stream.sources.items():
        table = connector_of(source).table(source, lake)
        if table is None or source.upstream in stand_ins:
            continue
        version = table.log.latest_version()
        if version is None:
            raise TerminalError(
                f"it reads {source.describe()}, and that table does not exist yet.",
                stream=stream.name,
                fix=f"tidemill run +{stream.name}"
                if source.upstream is not None
                else "correct the path, or create the table.",
                code="upstream-table-missing",
            )
        if not source.streaming:
            versions[name] = version
    return versions

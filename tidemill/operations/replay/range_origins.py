"""What the sources of a stream no longer have, and rows of a range that a backfill would remove and not compute.

A row of a feed knows its origin. A row of another stream does not; there only a range for which nothing is read is
known to be lost.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from tidemill.connectors.connector import Reading
from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.feed import feed_of
from tidemill.connectors.files.addresses import plain_path
from tidemill.connectors.files.span import missing_files
from tidemill.connectors.registry import resolved
from tidemill.definitions.columns import ORIGIN
from tidemill.errors import TerminalError
from tidemill.operations.generations.table_versions import missing_files as missing_in_version
from tidemill.run.decide.sources import streaming_sources
from tidemill.storage.table_ref import TableRef
from tidemill.text.plurals import first_few, pluralize

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow.dataset import Dataset

    from tidemill.connectors.answers import SourceSpan
    from tidemill.definitions.stream import Stream
    from tidemill.operations.replay.backfill_range import BackfillRange
    from tidemill.records.stream_records import Snapshot
    from tidemill.target.target import Target


def lost_origins(
    stream: "Stream", target: "Target", rows: "Dataset", span: "BackfillRange"
) -> tuple[str, ...]:
    """Return what the feed of a stream no longer has and rows of a range came from, a sentence each.

    Args:
        stream: The stream, which ingests a feed.
        rows: The rows of its main table.

    Raises:
        TransientError: The cluster does not answer.
    """
    feed = feed_of(stream)
    if feed is None:
        return ()
    origins = origins_in_range(rows, span)
    files = {file for file in origins.field("file").unique().to_pylist() if file is not None}
    lost = [*missing_files(f"feed {feed.name}", files, target.lake)]
    topics = zip(*(origins.field(part).to_pylist() for part in ("topic", "partition", "offset")), strict=True)
    first: dict[tuple[str, int], int] = {}
    for topic, partition, offset in topics:
        if topic is not None:
            first[(topic, partition)] = min(offset, first.get((topic, partition), offset))
    if first:
        connector, bound = resolved(feed, target)
        begins = connector.first_offsets(bound, target)
        lost += [
            f"Messages {offset} to {begins[partition] - 1} of {partition[0]}-{partition[1]} are missing."
            for partition, offset in sorted(first.items())
            if begins.get(partition, 0) > offset
        ]
    return tuple(lost)


def origins_in_range(rows: "Dataset", span: "BackfillRange") -> "pa.StructArray":
    """Return where the rows of a range came from, a struct per row.

    Args:
        rows: The rows of a table of records of a feed.
    """
    of_range = rows.to_table(columns=[ORIGIN], filter=in_range(rows, span))
    return of_range.column(ORIGIN).combine_chunks()


def in_range(rows: "Dataset", span: "BackfillRange") -> "pc.Expression":
    """Return the range as a filter of a table's rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = rows.schema.field(span.column).type
    begin, end = (pa.scalar(value).cast(kind) for value in (span.begin, span.end))
    return (pc.field(span.column) >= begin) & (pc.field(span.column) < end)


def check_unread(
    stream: "Stream", table: TableRef, span: "BackfillRange", spans: "Mapping[str, SourceSpan]", lookback: str
) -> None:
    """Check that each row of a range came from what is read.

    Args:
        table: Its main table's folder.
        lookback: The lookback, for people.

    Raises:
        TerminalError: A row did not.
    """
    opened = table.open()
    if opened is None or not spans:
        return
    fix = "give a longer --lookback; or declare no lookback, and everything is read again."
    if feed_of(stream) is not None:
        (read,) = spans.values()
        unread = dict(_unread(origins_in_range(table.dataset(opened), span), read))
        if unread:
            named = first_few([f"{origin} ({pluralize(rows, 'row')})" for origin, rows in unread.items()])
            raise TerminalError(
                f"{pluralize(sum(unread.values()), 'row')} of the range came from what a lookback of {lookback} does "
                f"not read, and would be missing: {named}.",
                stream=stream.name,
                fix=fix,
                code="lookback-too-short",
            )
    elif all(one.is_empty for one in spans.values()):
        data = table.dataset(opened)
        rows = data.count_rows(filter=in_range(data, span))
        if rows:
            raise TerminalError(
                f"with a lookback of {lookback}, nothing is read for the range, and its "
                f"{pluralize(rows, 'row')} would be missing.",
                stream=stream.name,
                fix=fix,
                code="lookback-too-short",
            )


def _unread(origins: "pa.StructArray", read: "SourceSpan") -> Iterator[tuple[str, int]]:
    """Yield each origin that is not read, and its number of rows, those with the most rows first."""
    unread: Counter[str] = Counter()
    files = {plain_path(file.path) for file in read.files or ()}
    for value in origins.field("file").value_counts().to_pylist():
        if value["values"] is not None and (path := plain_path(value["values"])) not in files:
            unread[Path(path).name] += value["counts"]
    begins, ends = read.begins or {}, read.ends or {}
    for topic, number, offset in zip(
        *(origins.field(part).to_pylist() for part in ("topic", "partition", "offset")), strict=True
    ):
        if topic is None:
            continue
        partition = (topic, number)
        if not begins.get(partition, 0) <= offset < ends.get(partition, 0):
            unread[f"message {offset} of {topic}-{number}"] += 1
    yield from unread.most_common()


_NONE: "Mapping[str, SourceSpan]" = MappingProxyType({})


def missing_in_sources(
    stream: "Stream",
    target: "Target",
    snapshot: "Snapshot",
    spans: "Mapping[str, SourceSpan]" = _NONE,
) -> tuple[str, ...]:
    """Return what the sources no longer have of what a stream has read, a sentence each.

    The table of another stream, or any Delta table, is read as it is now, so nothing of it is missing.

    Raises:
        TransientError: A cluster does not answer.
    """
    return tuple(_sentences(stream, target, snapshot, spans))


def removed_versions(
    stream: "Stream", target: "Target", snapshot: "Snapshot", spans: "Mapping[str, SourceSpan]"
) -> tuple[str, ...]:
    """Return the tables whose version at a stream's position VACUUM has removed, a sentence each.

    Args:
        spans: The sources of which only a part is read: the files of such a table were looked for.
    """
    sentences = []
    for name, source in streaming_sources(stream).items():
        at = DeltaPosition.of(snapshot.tail.planned(name))
        if at is None or source.upstream is None:
            continue
        if name in spans and spans[name].is_part:
            continue
        version = at.version - (not at.is_starting)
        files = missing_in_version(target.lake.table(source.upstream), version)
        if files is None or files:
            what = "its log" if files is None else pluralize(len(files), "file")
            sentences.append(
                f"Version {version} of {source.upstream} cannot be read any more: {what} is missing."
            )
    return tuple(sentences)


def _sentences(
    stream: "Stream", target: "Target", snapshot: "Snapshot", spans: "Mapping[str, SourceSpan]"
) -> Iterator[str]:
    for name, source in streaming_sources(stream).items():
        offset = snapshot.tail.planned(name)
        if offset is None or offset.raw is None:
            continue
        if name in spans and spans[name].is_part:
            yield from spans[name].missing
        else:
            connector, bound = resolved(source, target)
            reading = Reading(target=target, name=name, offset=offset, checkpoint=snapshot.checkpoint)
            yield from connector.missing(bound, reading)

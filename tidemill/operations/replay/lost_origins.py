"""Rows of a range whose origin a feed no longer has: a backfill would remove them and could not compute them."""

from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.connectors.feed import feed_of
from tidemill.connectors.files.backlog import plain_path
from tidemill.connectors.registry import resolved
from tidemill.definitions.columns import ORIGIN
from tidemill.storage.dataset import dataset_of
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    from tidemill.definitions.stream import Stream
    from tidemill.operations.replay.backfill_range import BackfillRange
    from tidemill.target.target import Target

_MOST_NAMED = 3


def lost_origins(
    stream: "Stream", target: "Target", table: "DeltaTable", span: "BackfillRange"
) -> tuple[str, ...]:
    """Return what the feed of a stream no longer has and rows of a range came from, a sentence each.

    Args:
        stream: The stream, which ingests a feed.
        table: Its main table.

    Raises:
        TransientError: The cluster does not answer.
    """
    feed = feed_of(stream)
    if feed is None:
        return ()
    origins = origins_in_range(table, span)
    files = {file for file in origins.field("file").unique().to_pylist() if file is not None}
    missing = sorted(path for path in map(plain_path, files) if not Path(path).exists())
    lost = []
    if missing:
        named = ", ".join(Path(path).name for path in missing[:_MOST_NAMED])
        more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
        lost.append(f"{pluralize(len(missing), 'file')} of feed {feed.name} are missing: {named}{more}.")
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


def origins_in_range(table: "DeltaTable", span: "BackfillRange") -> "pa.StructArray":
    """Return where the rows of a range came from, a struct per row.

    Args:
        table: A table of records of a feed.
    """
    rows = dataset_of(table).to_table(columns=[ORIGIN], filter=in_range(table, span))
    return rows.column(ORIGIN).combine_chunks()


def in_range(table: "DeltaTable", span: "BackfillRange") -> "pc.Expression":
    """Return the range as a filter of a table's rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = dataset_of(table).schema.field(span.column).type
    begin, end = (pa.scalar(value).cast(kind) for value in (span.begin, span.end))
    return (pc.field(span.column) >= begin) & (pc.field(span.column) < end)

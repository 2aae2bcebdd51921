"""Where an event came from: the row of a table upstream that has its time, and the origin of that row."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidemill.definitions.columns import ORIGIN

if TYPE_CHECKING:
    from tidemill.checks.context import CheckContext
    from tidemill.definitions.stream import Stream
    from tidemill.storage.table_ref import TableRef
    from tidemill.text.names import StreamName

_DEPTH = 8


def origin_of_event(context: "CheckContext", after_ms: int) -> str | None:
    """Return the origin of an event after a time, for people; None where no table upstream shows it.

    The tables that the stream reads with a watermark are searched, and those that they were filled from, up to one
    that has origins. The statistics in the log select the few files that have such an event.

    Args:
        after_ms: The time, milliseconds since the epoch.
    """
    for source in context.stream.sources.values():
        if source.watermark is None or source.upstream is None:
            continue
        column = source.watermark.column
        for name in _upwards(source.upstream, context.streams):
            row = _newest_row(context.target.lake.table(name), column, after_ms)
            if row is not None:
                return f"{column} {row[column]} in {name}, from {origin_text(row[ORIGIN])}"
    return None


def origin_text(origin: Mapping[str, Any]) -> str:
    """Return the column `_origin` of a row for people: a file, or a position in a topic."""
    if origin.get("file"):
        return f"the file {origin['file']}"
    return (
        f"offset {origin.get('offset')} of partition {origin.get('partition')} of topic {origin.get('topic')}"
    )


def _upwards(name: "StreamName", streams: "Mapping[StreamName, Stream]") -> "list[StreamName]":
    """Return a stream and the streams that it is filled from, nearest first."""
    names, level = [name], [name]
    for _ in range(_DEPTH):
        above = [up for one in level if one in streams for up in streams[one].upstreams]
        level = [up for up in dict.fromkeys(above) if up not in names]
        names += level
    return names


def _newest_row(table: "TableRef", column: str, after_ms: int) -> "dict[str, Any] | None":
    """Return one row after a time, with its origin; None where the table has none, or cannot show it."""
    opened = table.open()
    if opened is None or not {column, ORIGIN} <= {field.name for field in opened.schema().fields}:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        after = pa.scalar(after_ms * 1000, pa.timestamp("us", tz="UTC"))
        scanner = table.dataset(opened).scanner(columns=[column, ORIGIN], filter=pc.field(column) > after)
        rows = scanner.head(1).to_pylist()
    except Exception:  # noqa: BLE001 - a table that delta-rs cannot read, or a column that is no time
        return None
    return rows[0] if rows and rows[0][ORIGIN] is not None else None

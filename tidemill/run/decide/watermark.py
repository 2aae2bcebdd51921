"""The watermark that a stream would have if its query had never stopped.

Spark keeps the watermark of each input in memory and writes only the global one into the checkpoint. After a restart
an input without new rows counts as 0 (WatermarkTracker), so with the policy `min` two inputs that get news in
different runs would never move the watermark: nothing that it closes would be emitted, and the state would grow
forever. The manifest has the newest event time of each input, so each run can continue where the last one was.
With the policy `max` the global watermark is all there is to remember.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidemill.checkpoint import FileAbsentError, SourceOffset, read_offset
from tidemill.connectors.connector import Reading, SourceContext, newest_event_of
from tidemill.connectors.registry import resolved
from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.options import WATERMARK_POLICY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemill.checkpoint import Tail
    from tidemill.definitions.source import Watermark
    from tidemill.definitions.stream import Stream
    from tidemill.records.manifest import Generation
    from tidemill.records.stream_records import Snapshot
    from tidemill.target.target import Target


def watermark_to_continue(
    stream: "Stream", generation: "Generation", tail: "Tail", waiting: Collection[str]
) -> int | None:
    """Return the watermark of a query that never stopped, where it is higher than that of the checkpoint.

    An input that has been silent for longer than its `idle_after` holds nothing back. Where all inputs are idle, the
    one that is furthest ahead counts, as it does in Flink.

    Args:
        stream: The stream.
        generation: Its active generation.
        tail: The end of its checkpoint.
        waiting: The sources that may have unread rows, and so are not idle.

    Returns:
        Milliseconds since the epoch; None where the checkpoint has the watermark that the next batch needs.
    """
    names = generation.watermarks or ()
    declared = {name: source.watermark for name, source in stream.sources.items() if source.watermark}
    if len(names) < 2 or not declared.keys() >= set(names):  # noqa: PLR2004 - one input holds no other back
        return None
    if tail.latest_offset is None or tail.next_start.kind != "continue" or not tail.stateful:
        return None
    if tail.latest_offset.conf.get(WATERMARK_POLICY, stream.query.watermark_policy) != "min":
        return None
    reached = tail.next_watermark_ms or 0
    marks = {name: max(_mark(generation, name, declared[name]), reached) for name in names}
    active = [
        mark
        for name, mark in marks.items()
        if name in waiting or not _is_idle(generation, name, declared[name])
    ]
    watermark = min(active) if active else max(marks.values())
    return watermark if watermark > reached else None


def newest_events(
    stream: "Stream",
    target: "Target",
    snapshot: "Snapshot",
    batch: int,
    *,
    context: "SourceContext | None" = None,
) -> dict[str, int]:
    """Return the newest event time of each source in a batch.

    A run that is killed between the commit of a batch and its line in the ledger has not recorded them. Tables know
    them; the rows of other sources are read again. Where that cannot be, the watermark waits for newer events.

    Args:
        stream: The stream.
        target: The target.
        snapshot: Its records.
        batch: A batch whose offsets the checkpoint still has.
        context: What the sources need to be read again; None without Spark.
    """
    try:
        entry = read_offset(snapshot.checkpoint, batch)
        before = read_offset(snapshot.checkpoint, batch - 1).offsets if batch else {}
    except FileAbsentError:
        return {}
    newest = {}
    for name, source in stream.sources.items():
        end = entry.source(name)
        if source.watermark is None or end is None or before.get(name) == end.raw:
            continue
        connector, bound = resolved(source, target)
        reading = Reading(
            target=target,
            name=name,
            offset=None if before.get(name) is None else SourceOffset.parse("", name, None, before[name]),
            checkpoint=snapshot.checkpoint,
            record=snapshot.sources.get(name, SourceRecord()),
        )
        newest[name] = connector.newest_event(bound, reading, end)
        if newest[name] is None and context is not None:
            rows = connector.load_again(bound, context, reading, end)
            newest[name] = None if rows is None else _newest_in(rows, source.watermark)
    return {name: time_ms for name, time_ms in newest.items() if time_ms is not None}


def _newest_in(rows: "DataFrame", watermark: "Watermark") -> int | None:
    """Return the newest event time of rows, milliseconds since the epoch; None where they have none."""
    newest = newest_event_of(rows, watermark)
    return rows.agg(*newest).collect()[0][0] if newest else None


def _mark(generation: "Generation", name: str, watermark: "Watermark") -> int:
    """Return the watermark of one input; 0 before its first event."""
    newest = generation.newest_events.get(name)
    return 0 if newest is None else newest.time_ms - int(watermark.delay.total_seconds() * 1000)


def _is_idle(generation: "Generation", name: str, watermark: "Watermark") -> bool:
    if watermark.idle_after is None:
        return False
    newest = generation.newest_events.get(name)
    since = datetime.fromisoformat(generation.began_at if newest is None else newest.read_at)
    return datetime.now(UTC) - since > watermark.idle_after

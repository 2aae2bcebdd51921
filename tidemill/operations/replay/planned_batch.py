"""A checkpoint whose first batch is planned: it reads what another checkpoint has read, and nothing more.

Spark executes a batch that is planned and not committed over exactly the range that is planned. A source without a
position begins as a new one does: a topic with its first message, a table with a snapshot, a folder with the files in
the source's own log. Where only a part of a source is read, its beginning is planned as well: a topic has the offsets
that Spark resolves at a first start in the source's folder, a table its first version in the manifest.
"""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tidemill.checkpoint import OffsetEntry, SourceFile
from tidemill.checkpoint.format.source_log import LogEntry
from tidemill.checkpoint.write import CheckpointWriter
from tidemill.connectors.files.backlog import logged_files
from tidemill.connectors.kafka.position import offsets_json
from tidemill.connectors.registry import recognize
from tidemill.storage.store import Store

if TYPE_CHECKING:
    from tidemill.connectors.answers import SourceSpan
    from tidemill.records.stream_records import Snapshot


def plan_first_batch(
    checkpoint: Store,
    like: Store,
    entry: OffsetEntry,
    query_id: str,
    spans: "Mapping[str, SourceSpan]",
) -> None:
    """Write a checkpoint whose first batch reads everything up to the offsets of another one.

    Args:
        checkpoint: The files of the new checkpoint.
        like: The other checkpoint.
        entry: The offsets, of a batch of the other checkpoint.
        query_id: The query id of the new checkpoint.
    """
    writer = CheckpointWriter(checkpoint)
    writer.begin(query_id)
    for name, span in spans.items():
        if span.begins is not None:
            writer.write_initial_offsets(name, offsets_json(span.begins))
    ends = dict(_ends(writer, checkpoint, like, entry, spans))
    writer.write_first_batch(like, entry.batch_id, ends)


def plan_next_batch(
    planned: "Snapshot",
    like: Store,
    entry: OffsetEntry,
    spans: "Mapping[str, SourceSpan]",
) -> bool:
    """Plan a batch that reads what another checkpoint has read since; return whether there is anything.

    Args:
        planned: The records of the checkpoint, all of whose batches are committed.
        like: The other checkpoint.
        entry: The offsets, of a batch of the other checkpoint.
    """
    if planned.tail.latest_offset is None:
        return False
    writer, before = planned.writer(), planned.tail.latest_offset.offsets
    ends = {
        name: offset
        for name, offset in _ends(writer, planned.checkpoint, like, entry, spans)
        if before.get(name) != offset
    }
    if ends:
        writer.schedule_batch(planned.tail, ends)
    return bool(ends)


def plan_flush(planned: "Snapshot", watermark_ms: int | None) -> bool:
    """Plan a batch without rows that emits what a later watermark has closed; return whether it is later.

    Args:
        planned: The records of the checkpoint, all of whose batches are committed.
        watermark_ms: The watermark, milliseconds since the epoch; None before any event.
    """
    tail = planned.tail
    if not tail.stateful or watermark_ms is None or watermark_ms <= (tail.next_watermark_ms or 0):
        return False
    planned.writer().schedule_batch(tail, watermark_ms=watermark_ms)
    return True


def _ends(
    writer: CheckpointWriter,
    checkpoint: Store,
    like: Store,
    entry: OffsetEntry,
    spans: "Mapping[str, SourceSpan]",
) -> Iterator[tuple[str, str]]:
    """Yield where each source ends; where it keeps a log of what it reads, the files not logged yet are logged."""
    for source in entry.sources:
        if source.raw is None:
            continue
        span = spans.get(source.key)
        last_read = recognize(source).last_log_entry
        if last_read is None:
            yield source.key, source.raw if span is None or span.end is None else span.end
            continue
        files = logged_files(like, source.key) if span is None or span.files is None else span.files
        known = {file.path: file.entry for file in logged_files(checkpoint, source.key)}
        new = [file for file in files if file.entry <= last_read and file.path not in known]
        last = max(known.values(), default=-1)
        if new or last < 0:  # an entry without files is a batch without rows, which creates the tables
            last += 1
            entries = [SourceFile(file.path, file.timestamp_ms, last) for file in new]
            writer.write_source_log(source.key, LogEntry(last, compact=False), entries)
        yield source.key, json.dumps({"logOffset": last}, separators=(",", ":"))

"""Offset ranges of batches: they join without gap or overlap, and cover the rows that were read."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidemill.checkpoint import CheckpointFormatError, SourceOffset, read_offset
from tidemill.connectors.binding import kafka_of
from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.kafka.position import TopicPosition
from tidemill.connectors.positions import recognize
from tidemill.connectors.retention import topics_are_compacted
from tidemill.definitions.source import StreamTable
from tidemill.records.ledger_line import plain_offsets
from tidemill.run.tables.restores import restores_in
from tidemill.storage import delta_log

if TYPE_CHECKING:
    from pathlib import Path

    from tidemill.checks.context import CheckContext
    from tidemill.definitions.source import Source
    from tidemill.records.batch import BatchRecord

Offsets = Mapping[str, object]
_RESTORE = "Restore the checkpoint from a copy."


def offset_findings(
    context: "CheckContext", lines: "Mapping[int, BatchRecord]", before: Offsets
) -> list[str]:
    """Return where the ranges of batches do not join, or do not cover the rows that were read.

    Args:
        context: The context.
        lines: The ledger's lines by batch.
        before: Where each source ended before the first of them; empty where that is not known.
    """
    findings: list[str] = []
    end: Offsets = before
    previous: int | None = None
    for batch, line in sorted(lines.items()):
        joined = previous is None or previous == batch - 1
        if joined and end and line.start_offsets:
            findings += _joins(context, batch, end, line.start_offsets)
        findings += _as_planned(context, batch, line.end_offsets)
        findings += _goes_on(batch, line.start_offsets, line.end_offsets)
        findings += _covers(context, line)
        end, previous = line.end_offsets, batch
    return findings


def _joins(context: "CheckContext", batch: int, end: Offsets, start: Offsets) -> list[str]:
    return [
        f"Batch {batch} begins in {name} at {_text(start.get(name))}, and the batch before ended at "
        f"{_text(end[name])}: what lies between them was {_skipped(end[name], start.get(name))}. {_RESTORE}"
        for name in end
        if name in start and start[name] != end[name] and not _passes(context, name, end[name], start[name])
    ]


def _passes(context: "CheckContext", name: str, before: object, after: object) -> bool:
    """Return whether a reader went past commits that a rewind of its upstream took back (run/rewound.py)."""
    source = context.stream.sources.get(name)
    one, other = (DeltaPosition.of(_parsed(value)) for value in (before, after))
    if not isinstance(source, StreamTable):
        return False
    if one is None or other is None or one.version >= other.version:
        return False
    commits = delta_log.commits(context.target.lake.table(source.stream), one.version, other.version - 1)
    return any(
        restore.restored == one.version - 1 and restore.version == other.version - 1
        for restore in restores_in(commits)
    )


def _skipped(end: object, start: object) -> str:
    before, after = (_parsed(value) for value in (end, start))
    return (
        "read twice"
        if before is not None and after is not None and recognize(after).went_back(recognize(before))
        else "not read"
    )


def _as_planned(context: "CheckContext", batch: int, end: Offsets) -> list[str]:
    """Compare the range in the ledger with the offsets that the checkpoint still has."""
    try:
        planned = plain_offsets(read_offset(context.snapshot.checkpoint, batch))
    except CheckpointFormatError:
        return []  # purged, which is usual, or damaged, which `checkpoint_sound` reports where it matters
    return [
        f"offsets/{batch} has {_text(planned.get(name))} in {name}, and the batch ended at {_text(end[name])}: the "
        f"file is not what Spark wrote. {_RESTORE}"
        for name in end
        if planned.get(name) != end[name] and not _passes(context, name, end[name], planned.get(name))
    ]


def _goes_on(batch: int, start: Offsets, end: Offsets) -> list[str]:
    findings = []
    for name in end:
        before, after = _parsed(start.get(name)), _parsed(end[name])
        if before is not None and after is not None and recognize(after).went_back(recognize(before)):
            findings.append(
                f"Batch {batch} ends in {name} at {_text(end[name])}, before its begin {_text(start[name])}: rows were "
                f"read twice. {_RESTORE}"
            )
    return findings


def _covers(context: "CheckContext", line: "BatchRecord") -> list[str]:
    """Compare the rows that were read with the range, where the range of every source has a known number."""
    if line.rows_read is None or line.reconstructed:
        return []
    known, kafka = 0, []
    for name, source in context.stream.sources.items():
        if not source.streaming:
            continue
        rows = _rows_in_range(context, name, source, line)
        if rows is None:
            return []
        known += rows
        if TopicPosition.of(_parsed(line.end_offsets.get(name))) is not None:
            kafka.append(source)
    read = line.rows_read + (line.rows_blank or 0)
    if read > known:
        problem = "more than the range has: rows were read twice"
    elif read < known and not (kafka and _may_have_gaps(context, kafka)):
        problem = "and the range has more: rows were not read"
        if kafka:
            problem += (
                " (if the topic is written in transactions, declare checks=Checks(exact_offsets=False))"
            )
    else:
        return []
    what = f"Batch {line.batch_id} read {line.rows_read:,} rows from a range of {known:,}, {problem}."
    return [f"{what} Compare the table with its sources, and rebuild the stream where they differ."]


def _may_have_gaps(context: "CheckContext", sources: "Sequence[Source]") -> bool:
    """Return whether topics may have offsets without a message: compaction and transactions leave such.

    The cluster is asked only where a batch has fewer messages than offsets.
    """
    return not context.bounds.exact_offsets or any(
        topics_are_compacted(*kafka_of(source, context.target)) for source in sources
    )


def _rows_in_range(context: "CheckContext", name: str, source: "Source", line: "BatchRecord") -> int | None:
    """Return the rows in the range that a batch read from a source; None where that is not known."""
    start, end = (_parsed(offsets.get(name)) for offsets in (line.start_offsets, line.end_offsets))
    if end is None:
        return 0 if name in line.end_offsets else None
    if (last := TopicPosition.of(end)) is not None:
        first = TopicPosition.of(start)
        return None if first is None else _messages(first, last)
    if not isinstance(source, StreamTable) or source.mode != "append":
        return None
    versions = _whole_versions(context, name, start, end)
    if versions is None or (start is None and line.batch_id != 0):
        return None
    return _rows_added(context.target.lake.table(source.stream), versions)


def _whole_versions(
    context: "CheckContext", name: str, start: SourceOffset | None, end: SourceOffset
) -> range | None:
    """Return the versions of a table in a range; None where a part of one is in it, or a snapshot.

    Without a start the reader began with version 0, where the manifest states so.
    """
    if start is None:
        manifest = context.snapshot.manifest
        record = None if manifest is None else manifest.active.sources.get(name)
        if record is None or record.start != "log":
            return None
    positions = [DeltaPosition.of(offset) for offset in (start, end) if offset is not None]
    if any(at is None or at.index != -1 or at.is_starting for at in positions):
        return None
    if len({at.reservoir_id for at in positions if at is not None}) != 1:
        return None
    first, last = (0, *(at.version for at in positions if at is not None))[-2:]
    return range(first, last)


def _messages(start: TopicPosition, end: TopicPosition) -> int | None:
    count = 0
    begins = start.by_partition
    for partition, at in end.by_partition.items():
        if partition not in begins:  # a new partition, whose first offset only the cluster knows
            return None
        count += at - begins[partition]
    return count


def _rows_added(table: "Path", versions: Sequence[int]) -> int | None:
    """Return the rows that commits have added; None where the log no longer has one of them."""
    count = 0
    for version in versions:
        actions = delta_log.read_actions(table, version)
        if actions is None:
            return None
        if delta_log.commit_of(version, actions).removes_rows:
            continue  # readers of a stream's table skip it
        rows = rows_in_files(actions)
        if rows is None:
            return None
        count += rows
    return count


def rows_in_files(actions: "Sequence[Mapping[str, Mapping[str, object]]]") -> int | None:
    """Return the rows in the files that a commit adds as new data; None where a file has no statistics."""
    count = 0
    for action in actions:
        add = action.get("add")
        if add is None or not add.get("dataChange"):
            continue
        statistics = json.loads(str(add.get("stats") or "{}"))
        if "numRecords" not in statistics:
            return None
        count += int(statistics["numRecords"])
    return count


def _parsed(value: object) -> SourceOffset | None:
    """Return an offset of the ledger; None where the source had no data."""
    return None if value is None else SourceOffset.parse("the ledger", "", None, json.dumps(value))


def _text(value: object) -> str:
    """Return an offset for people; of a table only its version and file."""
    offset = _parsed(value)
    return (offset and recognize(offset).place()) or json.dumps(value)

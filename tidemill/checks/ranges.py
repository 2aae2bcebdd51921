"""Offset ranges of batches: they join without gap or overlap, and cover the rows that were read."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidemill.checkpoint import CheckpointFormatError, SourceOffset, read_offset
from tidemill.connectors.connector import Connector, Reading
from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.registry import recognize, resolved
from tidemill.connectors.source_record import SourceRecord
from tidemill.records.ledger_line import plain_offsets
from tidemill.run.tables.guard import restores_in

if TYPE_CHECKING:
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
    """Return whether a reader went past commits that a rewind of its upstream took back (run/tables/rewound.py)."""
    source = context.stream.sources.get(name)
    one, other = (DeltaPosition.of(_parsed(value)) for value in (before, after))
    if source is None or source.upstream is None:
        return False
    if one is None or other is None or one.version >= other.version:
        return False
    commits = context.target.lake.table(source.upstream).log.commits(one.version, other.version - 1)
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
    known, gaps = 0, []
    for name, source in context.stream.sources.items():
        if not source.streaming:
            continue
        connector, bound = resolved(source, context.target)
        rows = _rows_in_range(context, name, source, line)
        if rows is None:
            return []
        known += rows
        if connector.has_gaps:
            gaps.append((connector, bound))
    read = line.rows_read + (line.rows_blank or 0)
    if read > known:
        problem = "more than the range has: rows were read twice"
    elif read < known and not (gaps and _may_have_gaps(context, gaps)):
        problem = "and the range has more: rows were not read"
        if gaps:
            problem += (
                " (if the topic is written in transactions, declare checks=Checks(exact_offsets=False))"
            )
    else:
        return []
    what = f"Batch {line.batch_id} read {line.rows_read:,} rows from a range of {known:,}, {problem}."
    return [f"{what} Compare the table with its sources, and rebuild the stream where they differ."]


def _may_have_gaps(context: "CheckContext", sources: "Sequence[tuple[Connector[Any], Source]]") -> bool:
    """Return whether topics may have offsets without a message: compaction and transactions leave such.

    The cluster is asked only where a batch has fewer messages than offsets.
    """
    return not context.bounds.exact_offsets or any(
        connector.may_have_gaps(source, context.target) for connector, source in sources
    )


def _rows_in_range(context: "CheckContext", name: str, source: "Source", line: "BatchRecord") -> int | None:
    """Return the rows in the range that a batch read from a source; None where that is not known."""
    start, end = (_parsed(offsets.get(name)) for offsets in (line.start_offsets, line.end_offsets))
    if end is None:
        return 0 if name in line.end_offsets else None
    if start is None and line.batch_id != 0:
        return None
    record = context.snapshot.sources.get(name, SourceRecord())
    connector, bound = resolved(source, context.target)
    return connector.rows(bound, Reading(target=context.target, name=name, offset=start, record=record), end)


def _parsed(value: object) -> SourceOffset | None:
    """Return an offset of the ledger; None where the source had no data."""
    return None if value is None else SourceOffset.parse("the ledger", "", None, json.dumps(value))


def _text(value: object) -> str:
    """Return an offset for people; of a table only its version and file."""
    offset = _parsed(value)
    return (offset and recognize(offset).place()) or json.dumps(value)

"""A line of the ledger, made in one way for a batch that just ended and for one that a killed run committed."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from tidemill.checkpoint import FileAbsentError, OffsetEntry, read_offset
from tidemill.connectors.connector import NEWEST_EVENT, OWN_OBSERVATION, READ_OBSERVATION
from tidemill.connectors.violations import OBSERVATION
from tidemill.records.batch import BatchCounts, BatchRecord, Late, json_values
from tidemill.storage.commit_metadata import commit_metadata
from tidemill.storage.delta_log import Commit
from tidemill.storage.store import Store
from tidemill.tables.commit_counts import rows_ignored, rows_written
from tidemill.text.durations import iso_of

# Stateful operators that count late rows one by one; an aggregation counts groups after a partial aggregation.
_COUNTS_ROWS = ("dedup", "symmetricHashJoin", "flatMapGroups", "transformWithState", "applyInPandas")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOrigin:
    """The run, generation and query that a line belongs to."""

    run_id: str
    generation: int
    query_id: str


def batch_record(
    origin: BatchOrigin,
    checkpoint: Store,
    batch_id: int,
    *,
    commit: Commit | None,
    progress: Mapping[str, Any] | None = None,
    counts: BatchCounts | None = None,
) -> BatchRecord | None:
    """Return the line of a committed batch, from its offsets, its commit in the main table and its progress.

    Args:
        origin: The run, generation and query.
        commit: The main table's commit that holds the batch; None where it wrote nothing.
        progress: Spark's progress (Spark guide, "Monitoring Streaming Queries"); None where the run that
            executed the batch has been killed: the line is then marked as reconstructed.
        counts: What a batch of a feed has counted.

    Returns:
        The line; None when the checkpoint no longer has the batch's offsets (Spark keeps the last hundred).
    """
    try:
        offsets = read_offset(checkpoint, batch_id)
    except FileAbsentError:
        return None
    try:
        before = read_offset(checkpoint, batch_id - 1) if batch_id else None
    except FileAbsentError:
        before = None
    live = progress or {}
    metadata = _counted(counts) | {
        name: value for name, value in commit_metadata(commit).items() if value not in (None, {})
    }
    observed = _observed(live, OBSERVATION)
    event_time = live.get("eventTime") or {}
    operators = live.get("stateOperators") or []
    dropped = observed.get("dropped")
    follows = None if counts is None or commit is not None else counts.follows
    rows_read, rows_out = metadata.get("rows_read"), observed.get("rows")
    return BatchRecord(
        batch_id=batch_id,
        run_id=origin.run_id,
        generation=origin.generation,
        query_id=origin.query_id,
        started_at=live.get("timestamp") or iso_of(offsets.timestamp_ms) or "",
        milliseconds=dict(live.get("durationMs") or {}),
        rows_read=_rows_read(live) if rows_read is None else rows_read,
        rows_written=rows_written(commit, metadata) if commit else None if follows is None else 0,
        follows=follows,
        rows_ignored=rows_ignored(commit, metadata) if commit else None,
        rows_quarantined=metadata.get("rows_quarantined"),
        rows_out_quarantined=metadata.get("rows_out_quarantined"),
        rows_blank=metadata.get("rows_blank"),
        rows_out=metadata.get("rows_out") if rows_out is None else rows_out,
        rows_dropped=dropped if dropped is not None else metadata.get("rows_dropped"),
        violations={
            name.removeprefix("violated_"): count or 0
            for name, count in observed.items()
            if name.startswith("violated_")
        }
        or metadata.get("violations")
        or {},
        observed=_observed_by_function(progress)
        if counts is None or follows is not None
        else counts.observed,
        late=_late(operators) if progress is not None else None,
        start_offsets=plain_offsets(before) if before else {},
        end_offsets=plain_offsets(offsets),
        watermark_ms=offsets.watermark_ms or None,
        newest_event_ms=_milliseconds(event_time.get("max")),
        newest_event_ms_by_source=_newest_events(live),
        state_rows=sum(o.get("numRowsTotal") or 0 for o in operators) if operators else None,
        state_bytes=sum(o.get("memoryUsedBytes") or 0 for o in operators) if operators else None,
        state_rows_removed=sum(o.get("numRowsRemoved") or 0 for o in operators) if operators else None,
        delta_version=commit.version if commit else None,
        static_versions=metadata.get("static_versions") or {},
        reconstructed=progress is None,
    )


def _counted(counts: BatchCounts | None) -> dict[str, Any]:
    """Return the counts that a batch has by name."""
    return {} if counts is None else {name: n for name, n in asdict(counts).items() if n is not None}


def _observed_by_function(progress: Mapping[str, Any] | None) -> dict[str, dict[str, Any]] | None:
    """Return what a function observed that is a part of the query; None where nothing says what it was."""
    if progress is None:
        return None
    return {
        name: json_values(_observed(progress, name))
        for name in progress.get("observedMetrics") or {}
        if not name.startswith(OWN_OBSERVATION)
    }


def plain_offsets(entry: OffsetEntry) -> dict[str, object]:
    """Return offsets by source name, as the JSON that Spark wrote."""
    return {
        source.name or str(source.index): None if source.raw is None else json.loads(source.raw)
        for source in entry.sources
    }


def _rows_read(progress: Mapping[str, Any]) -> int | None:
    """Return the rows that the sources counted; Spark's count of input rows where none did."""
    if inputs := _inputs(progress):
        return sum(metrics.get("rows") or 0 for metrics in inputs.values())
    sources = progress.get("sources")
    return None if sources is None else sum(source.get("numInputRows") or 0 for source in sources)


def _newest_events(progress: Mapping[str, Any]) -> dict[str, int]:
    """Return the newest event time of each source that had events."""
    newest = {name: metrics.get(NEWEST_EVENT) for name, metrics in _inputs(progress).items()}
    return {name: time for name, time in newest.items() if time is not None}


def _inputs(progress: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return what was observed of each source, by source name."""
    return {
        name.removeprefix(READ_OBSERVATION): _observed(progress, name)
        for name in progress.get("observedMetrics") or {}
        if name.startswith(READ_OBSERVATION)
    }


def _observed(progress: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the metrics of one observation; Spark Connect sends values and a schema instead of an object."""
    metrics = (progress.get("observedMetrics") or {}).get(name) or {}
    if set(metrics) == {"values", "schema"}:
        return dict(
            zip((field["name"] for field in metrics["schema"]["fields"]), metrics["values"], strict=True)
        )
    return metrics


def _late(operators: list[Mapping[str, Any]]) -> Late:
    counts = [(operator, operator.get("numRowsDroppedByWatermark") or 0) for operator in operators]
    groups = any(
        count and not str(operator.get("operatorName", "")).startswith(_COUNTS_ROWS)
        for operator, count in counts
    )
    return Late(sum(count for _, count in counts), "groups" if groups else "rows")


def _milliseconds(time: str | None) -> int | None:
    if not time:
        return None
    return int(datetime.fromisoformat(time).astimezone(UTC).timestamp() * 1000)

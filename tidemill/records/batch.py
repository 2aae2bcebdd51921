"""One micro-batch as it is recorded: a line of the ledger, and what foreachBatch counted."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any, Literal

from tidemill.storage.store import Store


@dataclass(frozen=True, slots=True)
class Late:
    """Input that was behind the watermark and was not counted.

    Attributes:
        count: How many.
        unit: `rows`, or `groups` where an aggregation combined rows before it counted.
    """

    count: int = 0
    unit: Literal["rows", "groups"] = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """What a batch counted; None where it did not.

    Attributes:
        rows_read: Rows that entered the function; of a feed its records, those in quarantine included.
        rows_blank: Lines of a feed that are no records, and are not among those read: blank ones, and headers.
        rows_quarantined: Records of a feed and rows of the output that went to quarantine.
        rows_out_quarantined: Rows of the output among them, where expectations can send them there.
        rows_out: Rows that left the function, where the stream has expectations.
        rows_dropped: Rows left out by expectations.
        follows: Of a batch that fired no timer and has no commit in its tables: the newest batch that the main table
            has.
        violations: Violations by expectation.
        observed: What its function observed with `observe()`, by the names of the observation and of the metric.
    """

    query_id: str
    rows_read: int | None = None
    rows_blank: int | None = None
    rows_quarantined: int | None = None
    rows_out_quarantined: int | None = None
    rows_out: int | None = None
    rows_dropped: int | None = None
    follows: int | None = None
    violations: Mapping[str, int] = field(default_factory=dict)
    observed: Mapping[str, Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord(BatchCounts):
    """One micro-batch: a line of the ledger.

    Numbers are None where a batch was reconstructed after a kill and no file has them any more.

    Attributes:
        batch_id: Spark's batch id.
        run_id: The run that executed it.
        started_at: ISO-8601 UTC.
        milliseconds: By phase, in Spark's words (`addBatch`, `walCommit`, ...), `triggerExecution` in total.
        rows_written: Rows of the main table's commit; of a merge those inserted, updated or removed, where a row that
            is replaced by its tombstone counts once.
        rows_ignored: Changes that a merge with `sequence_by` ignored because their sequence was not new: not higher
            than that of the row in the table (`scd_type=1`), or one that the key has already (`scd_type=2`). A
            change that a newer one in the same batch replaces is not counted. None for other sinks.
        late: Input behind the watermark.
        start_offsets: Where each source began, by source name, in Spark's own JSON.
        end_offsets: Where each source ended.
        watermark_ms: The watermark during the batch, milliseconds since the epoch; None without one.
        newest_event_ms: The newest event time in the batch, milliseconds since the epoch.
        newest_event_ms_by_source: The same of each source with a watermark that had events, by source name.
        state_rows: Rows in state after the batch.
        state_bytes: Memory of the state after the batch.
        state_rows_removed: Rows that the batch evicted from state.
        delta_version: The main table's version that holds the batch.
        static_versions: The Delta version of each static reading.
        reconstructed: Whether a later run wrote the line, from the checkpoint and the Delta log.
    """

    batch_id: int
    run_id: str
    generation: int
    started_at: str
    milliseconds: Mapping[str, int] = field(default_factory=dict)
    rows_written: int | None = None
    rows_ignored: int | None = None
    late: Late | None = None
    start_offsets: Mapping[str, object] = field(default_factory=dict)
    end_offsets: Mapping[str, object] = field(default_factory=dict)
    watermark_ms: int | None = None
    newest_event_ms: int | None = None
    newest_event_ms_by_source: Mapping[str, int] = field(default_factory=dict)
    state_rows: int | None = None
    state_bytes: int | None = None
    state_rows_removed: int | None = None
    delta_version: int | None = None
    static_versions: Mapping[str, int] = field(default_factory=dict)
    reconstructed: bool = False


def json_values(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of metrics as every reader of JSON knows them: a number that is not finite is null."""
    return {name: _json_value(value) for name, value in metrics.items()}


def _json_value(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float() | Decimal():
            return float(value) if math.isfinite(value) else None
        case Mapping():
            return {str(key): _json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [_json_value(item) for item in value]
    return str(value)


_FOLDER = "counts"
_COUNTS = re.compile(rf"{_FOLDER}/([0-9]+)/([0-9]+)\.json", re.ASCII)


def read_counts(files: Store, generation: int, batch_id: int, query_id: str) -> BatchCounts | None:
    """Return the counts of a batch; None where it has none, or where they are of another query.

    A file that a power failure has damaged is as good as none: its counts are missing in the ledger, and no row is.
    """
    try:
        counts = BatchCounts(**json.loads(files.read(_key(generation, batch_id))))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return counts if counts.query_id == query_id else None


def write_counts(files: Store, generation: int, batch_id: int, counts: BatchCounts) -> None:
    """Write the counts of a batch."""
    files.replace(_key(generation, batch_id), json.dumps(asdict(counts)).encode())


def remove_counts(files: Store, generation: int, *, last: int) -> None:
    """Remove the counts of a generation's batches up to one, and those of generations that have ended."""
    for of, batches in _by_generation(files).items():
        if of <= generation:
            files.delete(_key(of, batch) for batch in batches if of < generation or batch <= last)


def _by_generation(files: Store) -> dict[int, list[int]]:
    batches: dict[int, list[int]] = {}
    for entry in files.walk(_FOLDER):
        if match := _COUNTS.fullmatch(entry.key):
            batches.setdefault(int(match[1]), []).append(int(match[2]))
    return batches


def _key(generation: int, batch_id: int) -> str:
    return f"{_FOLDER}/{generation}/{batch_id}.json"

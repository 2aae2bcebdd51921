"""One micro-batch as it is recorded: a line of the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


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
class BatchRecord:
    """One micro-batch: a line of the ledger.

    Numbers are None where a batch was reconstructed after a kill and no file has them any more.

    Attributes:
        batch_id: Spark's batch id.
        run_id: The run that executed it.
        started_at: ISO-8601 UTC.
        milliseconds: By phase, in Spark's words (`addBatch`, `walCommit`, ...), `triggerExecution` in total.
        rows_read: Rows that entered the function; of a feed its records, those in quarantine included.
        rows_written: Rows of the main table's commit; of a merge those inserted, updated or removed, where a row that
            is replaced by its tombstone counts once.
        rows_ignored: Changes that a merge with `sequence_by` ignored because their sequence was not new: not higher
            than that of the row in the table (`scd_type=1`), or one that the key has already (`scd_type=2`). A
            change that a newer one in the same batch replaces is not counted. None for other sinks.
        rows_quarantined: Records that went to quarantine.
        rows_blank: Lines of a feed that are no records, and are not among those read: blank ones, and headers.
        rows_out: Rows that left the function, where the stream has expectations.
        rows_dropped: Rows left out by expectations.
        violations: Violations by expectation.
        late: Input behind the watermark.
        start_offsets: Where each source began, by source name, in Spark's own JSON.
        end_offsets: Where each source ended.
        watermark_ms: The watermark during the batch, milliseconds since the epoch; None without one.
        newest_event_ms: The newest event time in the batch, milliseconds since the epoch.
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
    query_id: str
    started_at: str
    milliseconds: Mapping[str, int] = field(default_factory=dict)
    rows_read: int | None = None
    rows_written: int | None = None
    rows_ignored: int | None = None
    rows_quarantined: int | None = None
    rows_blank: int | None = None
    rows_out: int | None = None
    rows_dropped: int | None = None
    violations: Mapping[str, int] = field(default_factory=dict)
    late: Late | None = None
    start_offsets: Mapping[str, object] = field(default_factory=dict)
    end_offsets: Mapping[str, object] = field(default_factory=dict)
    watermark_ms: int | None = None
    newest_event_ms: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    state_rows_removed: int | None = None
    delta_version: int | None = None
    static_versions: Mapping[str, int] = field(default_factory=dict)
    reconstructed: bool = False

"""What a run says about itself: plain values that are printed, recorded and tested."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pipelines.streaming.errors import TidemillError
from pipelines.streaming.names import StreamName

Outcome = Literal["updated", "idle", "failed", "skipped", "canceled"]


@dataclass(frozen=True, slots=True)
class Late:
    """Input that came behind the watermark and was not counted.

    Attributes:
        count: How many.
        unit: `rows`, or `groups` where an aggregation combined rows before it counted.
    """

    count: int = 0
    unit: Literal["rows", "groups"] = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """One micro-batch: a line of the ledger.

    Numbers are None where a batch was reconstructed after a kill and nothing tells them any more.

    Attributes:
        batch_id: Spark's batch id.
        run_id: The run that executed it.
        generation: The checkpoint's generation.
        query_id: Spark's query id.
        started_at: ISO-8601 UTC.
        milliseconds: By phase, in Spark's words (`addBatch`, `walCommit`, ...), `triggerExecution` in total.
        rows_read: Input rows.
        rows_written: Rows of the main table's commit.
        rows_quarantined: Records that went to quarantine.
        rows_dropped: Rows left out by expectations.
        violations: Violations by expectation.
        late: Input behind the watermark.
        start_offsets: Where each source began, by source name, in Spark's own JSON.
        end_offsets: Where each source ended.
        watermark_ms: The watermark during the batch, milliseconds since the epoch; None without one.
        newest_event_ms: The newest event time in the batch.
        state_rows: Rows in state after the batch.
        state_bytes: Memory of the state after the batch.
        delta_version: The main table's version that holds the batch.
        static_versions: The Delta version of each static reading.
        reconstructed: Whether it was written by a later run, from the checkpoint and the Delta log.
    """

    batch_id: int
    run_id: str
    generation: int
    query_id: str
    started_at: str
    milliseconds: Mapping[str, int] = field(default_factory=dict)
    rows_read: int | None = None
    rows_written: int | None = None
    rows_quarantined: int | None = None
    rows_dropped: int | None = None
    violations: Mapping[str, int] = field(default_factory=dict)
    late: Late | None = None
    start_offsets: Mapping[str, object] = field(default_factory=dict)
    end_offsets: Mapping[str, object] = field(default_factory=dict)
    watermark_ms: int | None = None
    newest_event_ms: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    delta_version: int | None = None
    static_versions: Mapping[str, int] = field(default_factory=dict)
    reconstructed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResult:
    """What one run did to one stream.

    Attributes:
        stream: Its name.
        outcome: `updated`, `idle`, `failed`, `skipped` or `canceled`.
        batches: The micro-batches of this run, oldest first; batches without input are among them.
        seconds: Wall time, from the lease to the last ledger line.
        watermark_ms: The watermark for the next batch, milliseconds since the epoch; None without one.
        table: The main table's folder.
        table_version: The main table's Delta version at the end.
        generation: The checkpoint's generation.
        state_rows: Rows in state at the end.
        state_bytes: Memory of the state at the end.
        error: What went wrong, for `failed` and `canceled`.
        reason: In a few words why it was run, skipped or left idle.
    """

    stream: StreamName
    outcome: Outcome
    batches: tuple[BatchRecord, ...] = ()
    seconds: float = 0.0
    watermark_ms: int | None = None
    table: str | None = None
    table_version: int | None = None
    generation: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    error: TidemillError | None = None
    reason: str = ""

    def total(self, count: Literal["rows_read", "rows_written", "rows_quarantined", "rows_dropped"]) -> int:
        """A count over all batches; unknown ones add nothing."""
        return sum(getattr(batch, count) or 0 for batch in self.batches)

    @property
    def late(self) -> Late:
        """Late input over all batches."""
        counted = [batch.late for batch in self.batches if batch.late and batch.late.count]
        return Late(sum(late.count for late in counted), counted[0].unit if counted else "rows")

    @property
    def seconds_by_phase(self) -> dict[str, float]:
        """Seconds by phase over all batches, in Spark's words."""
        phases: dict[str, float] = {}
        for batch in self.batches:
            for phase, milliseconds in batch.milliseconds.items():
                phases[phase] = phases.get(phase, 0.0) + milliseconds / 1000
        return phases

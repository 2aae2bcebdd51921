"""The result of a run for one stream: plain values that are printed, recorded and tested."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tidemill.errors import TidemillError
from tidemill.plans.lineage import Lineage
from tidemill.plans.observations import Fold, Observations
from tidemill.records.batch import BatchRecord, Late
from tidemill.records.registrations import Registration
from tidemill.text.names import StreamName

_FOLDS: Mapping[Fold, Callable[[Sequence[float]], float]] = {
    "sum": sum,
    "min": min,
    "max": max,
    "last": lambda numbers: numbers[-1],
}

Outcome = Literal["updated", "idle", "busy", "failed", "skipped", "canceled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResult:
    """The result of one run for one stream.

    Attributes:
        outcome: `updated`, `idle`, `busy` (another run holds its lease), `failed`, `skipped` or `canceled`.
        batches: The micro-batches of this run, oldest first, batches without input included.
        seconds: Wall time, from the lease to the last ledger line.
        watermark_ms: The watermark of the next batch, milliseconds since the epoch; None without one.
        table: The main table's folder.
        table_version: The main table's Delta version at the end.
        state_rows: Rows in state at the end.
        state_bytes: Memory of the state at the end.
        error: The error of a failed or canceled stream.
        reason: Why it ran, was skipped, was busy or was left idle, in a few words.
        warnings: What its author may not expect, one sentence each.
        lineage: The columns of the sources that each output column is computed from, where the plan shows them.
        observations: What its function observes, and how the values of several batches combine.
        catalog: What a catalog said about its tables, by sink; empty where no catalog has them.
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
    warnings: tuple[str, ...] = ()
    lineage: Lineage = field(default_factory=dict)
    observations: Observations = field(default_factory=dict)
    catalog: Mapping[str, Registration] = field(default_factory=dict)

    def total(self, count: Literal["rows_read", "rows_written", "rows_quarantined", "rows_dropped"]) -> int:
        """Return a count over all batches; unknown counts add nothing."""
        return sum(getattr(batch, count) or 0 for batch in self.batches)

    @property
    def late(self) -> Late:
        """Late input over all batches."""
        counts = [batch.late for batch in self.batches if batch.late and batch.late.count]
        return Late(sum(late.count for late in counts), counts[0].unit if counts else "rows")

    @property
    def seconds_by_phase(self) -> dict[str, float]:
        """Seconds by phase over all batches, in Spark's words."""
        phases: dict[str, float] = {}
        for batch in self.batches:
            for phase, milliseconds in batch.milliseconds.items():
                phases[phase] = phases.get(phase, 0.0) + milliseconds / 1000
        return phases

    @property
    def observed(self) -> dict[str, dict[str, float]]:
        """The numbers that its function observed, over all batches: sums of counts and sums, extremes of extremes.

        Of any other aggregate it is the value of the last batch that read rows; batches without a value do not count.
        """
        observed: dict[str, dict[str, float]] = {}
        for name in {name: None for batch in self.batches for name in batch.observed or {}}:
            for metric, numbers in self._numbers(name).items():
                fold = self.observations.get(name, {}).get(metric, "last")
                observed.setdefault(name, {})[metric] = _FOLDS[fold](numbers)
        return observed

    def _numbers(self, observation: str) -> dict[str, list[float]]:
        """Return the numbers of an observation by metric; those of batches without rows come first."""
        numbers: dict[str, list[float]] = {}
        for batch in sorted(self.batches, key=lambda batch: bool(batch.rows_read)):
            for metric, value in ((batch.observed or {}).get(observation) or {}).items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    numbers.setdefault(metric, []).append(value)
        return numbers

"""Generated rows as a source."""

from dataclasses import dataclass

from tidemill.definitions.source import Source, positive


@dataclass(frozen=True, kw_only=True)
class RateSource(Source):
    """Rows that Spark generates, one micro-batch per run: `timestamp` and `value`, counted from 0.

    Attributes:
        rows_per_batch: The rows of a micro-batch.
        advance_ms: How much later the rows of the next batch are, in milliseconds.
    """

    kind = "rate"
    rows_per_batch: int = 1
    advance_ms: int = 1000

    def __post_init__(self) -> None:
        positive(self.rows_per_batch, field="RateSource: rows_per_batch")
        positive(self.advance_ms, field="RateSource: advance_ms")

    def describe(self) -> str:
        """Return the number of rows per batch."""
        return f"{self.rows_per_batch} generated rows per batch"

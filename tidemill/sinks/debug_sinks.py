"""Show the rows of each micro-batch, or keep them in memory: for debugging and tests."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemill.definitions.sink import Delivery, SinkBatch, SinkContext
from tidemill.errors import DefinitionError, TerminalError
from tidemill.sinks.external_sink import ExternalSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class DebugSink(ExternalSink):
    """Base of the sinks that keep no rows after the run.

    Attributes:
        debug: True, which says that nobody needs the rows.
    """

    debug: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.debug is not True:
            raise DefinitionError(
                f"{type(self).__name__} keeps no rows after the run, so it is for debugging only: give debug=True, or "
                "use a sink that keeps the rows, such as DeltaAppend().",
                code="sink-for-debugging",
            )

    @property
    def keeps_rows(self) -> bool:
        """Nobody needs the rows."""
        return False

    @property
    def delivery(self) -> Delivery:
        """A batch that is repeated before the main table has committed is shown again."""
        return "at least once"


@dataclass(frozen=True)
class ConsoleSink(DebugSink):
    """The first rows of each batch are printed on stderr, for debugging only.

    They are printed where the batch is written: by the run itself with an embedded Spark, and into the log of the
    server with Spark Connect, also a warm one. Nothing is kept: without a table sink, a run that reads the rows again
    needs `tidemill reset`.

    Attributes:
        n: The most rows of a batch.
        truncate: The most characters of a value; 0: all of them.
        debug: Must be True.
        name: The name of the sink.
    """

    n: int = 20
    truncate: int = 20
    name: str = field(default="console", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for argument, value, least in (("n", self.n, 1), ("truncate", self.truncate, 0)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise DefinitionError(
                    f"ConsoleSink: {argument} is {value!r}; give a whole number of at least {least}."
                )

    def write(self, rows: "DataFrame", batch: SinkBatch) -> None:
        """Print the first rows."""
        first = rows.take(self.n + 1)
        lines = [
            f"{batch.identity.stream}, batch {batch.identity.batch_id}:",
            *self._table(rows.columns, first),
        ]
        more = ["(more rows)"] if len(first) > self.n else []
        sys.stderr.write("\n".join([*lines, *more, ""]))

    def _table(self, columns: Sequence[str], rows: "Sequence[Row]") -> list[str]:
        cells = [list(columns), *([self._cell(value) for value in row] for row in rows[: self.n])]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]

    def _cell(self, value: Any) -> str:
        written = "NULL" if value is None else str(value)
        return f"{written[: self.truncate]}..." if 0 < self.truncate < len(written) else written


@dataclass(frozen=True)
class MemorySink(DebugSink):
    """The rows of the batches are kept in this process, for debugging and tests only.

    ```python
    from tidemill import Feed, Json, MemorySink, Pipeline

    totals = MemorySink("totals", debug=True)
    ```

    A test runs a stream with this sink by `Scratch.run` of `tidemill.testing`, and then compares `totals.rows()`. The
    rows are lost when the process ends, so do not use the sink in a run of the command or of Dagster. It needs an
    embedded Spark: with Spark Connect, also a warm server, batches are written in another process, and the run is
    refused.

    Attributes:
        name: The name of the sink.
        debug: Must be True.
    """

    name: str = field(kw_only=False)
    _batches: "dict[tuple[str, int], list[Row]]" = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def rows(self) -> "list[Row]":
        """Return the rows of all batches since the sink was declared; a repeated batch counts once."""
        return [row for rows in self._batches.values() for row in rows]

    def prepare(self, spark: "SparkSession", context: SinkContext, output: "StructType") -> None:  # noqa: ARG002
        """Check that batches are written in this process.

        Raises:
            TerminalError: Spark is elsewhere.
        """
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            raise TerminalError(
                f"its MemorySink {self.name!r} keeps rows in this process, and batches are written by a Spark Connect "
                "server.",
                fix='leave the sink out, or run the stream with mode = "local".',
                code="sink-not-local",
            )

    def write(self, rows: "DataFrame", batch: SinkBatch) -> None:
        """Keep the rows, in place of those of an earlier attempt of the batch."""
        self._batches[batch.identity.query_id, batch.identity.batch_id] = rows.collect()

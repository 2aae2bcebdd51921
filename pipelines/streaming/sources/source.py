"""The base of all sources: a watermark, and how a source becomes a DataFrame."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, Self

from pipelines.streaming.durations import duration, interval
from pipelines.streaming.errors import DefinitionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipelines.streaming.names import StreamName
    from pipelines.streaming.target import Target


StartingPoint = int | Literal["snapshot", "begun", "declared"]
"""Where a reader of a table begins: with the commits from a version on; with a snapshot, which is one batch; where the
checkpoint says; or where the options of the source say."""
READ_OBSERVATION = "tidemill_read_"
"""The prefix of the observations that count the rows of a source, each with the source's name."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late rows may arrive: Spark guide, "Handling Late Data and Watermarking".

    Attributes:
        column: The event-time column, a timestamp.
        delay: How far a row may be behind the newest event time seen.
    """

    column: str
    delay: timedelta


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source needs to become a DataFrame in one run of one stream.

    Attributes:
        spark: The session of the stream.
        target: The target's lake, bindings and clusters.
        pins: The Delta version of each static reading, by source name.
        starts: Where each reader of a table begins, by source name.
    """

    spark: "SparkSession"
    target: "Target"
    pins: Mapping[str, int] = field(default_factory=dict)
    starts: Mapping[str, StartingPoint] = field(default_factory=dict)


@dataclass(frozen=True)
class Source(ABC):
    """Base of all sources.

    Attributes:
        watermark: Set through `with_watermark`.
    """

    watermark: Watermark | None = field(default=None, kw_only=True)

    @property
    def streaming(self) -> bool:
        """Whether new data in it triggers the stream; a snapshot does not."""
        return True

    @property
    def upstream(self) -> "StreamName | None":
        """The stream whose table it reads; None for other sources."""
        return None

    def with_watermark(self, column: str, delay: str | timedelta) -> Self:
        """Return the same source with a watermark.

        Args:
            column: The event-time column.
            delay: How late rows may arrive: `"2 hours"`.

        Raises:
            DefinitionError: The column or the delay is not valid, the source is a snapshot, or it already has a
                watermark.
        """
        if not self.streaming:
            raise DefinitionError(
                f"{self.describe()}: a snapshot has no watermark; put it on a streaming source."
            )
        if self.watermark is not None:
            raise DefinitionError(
                f"{self.describe()}: it already has a watermark on {self.watermark.column!r}."
            )
        if not isinstance(column, str) or not column:
            raise DefinitionError(
                f"{self.describe()}: watermark column is {column!r}; name an event-time column."
            )
        delay = duration(delay, what=f"{self.describe()}: watermark delay")
        return replace(self, watermark=Watermark(column, delay))

    @abstractmethod
    def describe(self) -> str:
        """Return a short description, for messages and lineage."""

    @abstractmethod
    def load(self, context: SourceContext, name: str) -> "DataFrame":
        """Return the source as a DataFrame, without its watermark.

        Args:
            context: The session, the target and the pins of the run.
            name: Its name in the checkpoint.
        """

    def open(self, context: SourceContext, name: str) -> "DataFrame":
        """Return the source as a DataFrame, with its watermark; where it streams, its rows are counted."""
        rows = self.load(context, name)
        if self.streaming:
            rows = observed_input(rows, name)
        if self.watermark is None:
            return rows
        return rows.withWatermark(self.watermark.column, interval(self.watermark.delay))


def observed_input(rows: "DataFrame", name: str) -> "DataFrame":
    """Return rows that are counted where they enter the function.

    Spark's own count of input rows is of reads: it misses rows that a pushed filter leaves out, and has rows twice
    that are read twice.
    """
    from pyspark.sql import functions as F

    return rows.observe(f"{READ_OBSERVATION}{name}", F.count(F.lit(1)).alias("rows"))


def positive(value: int | None, *, what: str) -> int | None:
    """Return a limit that is None or at least 1.

    Raises:
        DefinitionError: With the field and the value.
    """
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise DefinitionError(f"{what} is {value!r}: it must be a whole number of at least 1.")
    return value

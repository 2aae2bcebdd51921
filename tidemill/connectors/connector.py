"""The base of all connectors: one object per kind of source, with everything about the kind."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, TypeVar

from tidemill.checkpoint import SourceOffset
from tidemill.checkpoint.positions import Position
from tidemill.definitions.source import Source
from tidemill.text.durations import interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidemill.target.target import Target

AnySource = TypeVar("AnySource", bound=Source)

StartingPoint = int | Literal["snapshot", "begun", "declared"]
"""Where a reader of a table begins: with the commits from a version on; with a snapshot, which is one batch; where the
checkpoint says; or where the options of the source say."""
READ_OBSERVATION = "tidemill_read_"
"""The prefix of the observations that count the rows of a source, each with the source's name."""


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


class Connector(ABC, Generic[AnySource]):
    """One kind of source.

    Attributes:
        kind: The name of the kind, as `Source.kind` and the manifest have it.
    """

    kind: ClassVar[str]

    @abstractmethod
    def load(self, source: AnySource, context: SourceContext, name: str) -> "DataFrame":
        """Return a source as a DataFrame, without its watermark.

        Args:
            source: The source.
            context: The session, the target and the pins of the run.
            name: Its name in the checkpoint.
        """

    def parse(self, offset: SourceOffset) -> Position | None:
        """Return the position in an offset; None where a source of this kind did not write it, or nobody knows."""
        del offset
        return None

    def open(self, source: AnySource, context: SourceContext, name: str) -> "DataFrame":
        """Return a source as a DataFrame, with its watermark; where it streams, its rows are counted."""
        rows = self.load(source, context, name)
        if source.streaming:
            rows = observed_input(rows, name)
        if source.watermark is None:
            return rows
        return rows.withWatermark(source.watermark.column, interval(source.watermark.delay))


def observed_input(rows: "DataFrame", name: str) -> "DataFrame":
    """Return rows that are counted where they enter the function.

    Spark's own count of input rows is of reads: it misses rows that a pushed filter leaves out, and has rows twice
    that are read twice.
    """
    from pyspark.sql import functions as F

    return rows.observe(f"{READ_OBSERVATION}{name}", F.count(F.lit(1)).alias("rows"))

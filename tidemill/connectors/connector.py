"""The base of all connectors: one object per kind of source, with everything about the kind."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from tidemill.checkpoint import SourceOffset
from tidemill.checkpoint.format.folder import Checkpoint
from tidemill.checkpoint.positions import Position
from tidemill.connectors.answers import (
    SOURCE,
    Continuation,
    Expiry,
    ExternalData,
    Offsets,
    Period,
    SourceSpan,
    Start,
)
from tidemill.connectors.backlog import Backlog
from tidemill.connectors.external_keys import other_key
from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.source import Source, Watermark
from tidemill.errors import TerminalError
from tidemill.text.durations import spark_interval

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tidemill.storage.lake import Lake
    from tidemill.storage.table_ref import TableRef
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName

AnySource = TypeVar("AnySource", bound=Source)
Binding = Mapping[str, Any]
"""The identity of what a source reads, as plain data."""

StartingPoint = int | Literal["snapshot", "begun", "declared"]
"""Where a reader of a table begins: with the commits from a version on; with a snapshot, which is one batch; where the
checkpoint says; or where the options of the source say."""
OWN_OBSERVATION = "tidemill_"
"""The prefix of all observations of Tidemill's, which no observation of a function may have."""
READ_OBSERVATION = f"{OWN_OBSERVATION}read_"
"""The prefix of the observations that count the rows of a source, each with the source's name."""
NEWEST_EVENT = "newest_event_ms"
"""What such an observation calls the newest event time, milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source needs to become a DataFrame in one run of one stream.

    Attributes:
        target: The target's lake, bindings and clusters.
        pins: The Delta version of each static reading, by source name.
        starts: Where each reader of a table begins, by source name.
        schemas: The inferred columns of each source that has no declared ones, by source name.
        stops_at_removed: Whether a reader of another stream's table fails at a commit that removed rows. Otherwise it
            passes by, and the run checks the commits first.
        stand_ins: The columns of the tables of other streams that do not exist yet, by stream: a query of them can be
            planned, and not run.
    """

    spark: "SparkSession"
    target: "Target"
    pins: Mapping[str, int] = field(default_factory=dict)
    starts: Mapping[str, StartingPoint] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=dict)
    stops_at_removed: bool = False
    stand_ins: "Mapping[StreamName, StructType]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How far a stream has read one of its sources.

    Attributes:
        name: The source's name in the checkpoint.
        offset: The position up to which it is read; None before the first batch.
        checkpoint: The checkpoint's files; None before the first run.
        record: What the manifest records about the source.
    """

    target: "Target"
    name: str
    offset: SourceOffset | None = None
    checkpoint: Checkpoint | None = None
    record: SourceRecord = field(default_factory=SourceRecord)


class Connector(ABC, Generic[AnySource]):
    """One kind of source. Only `kind` and `load` are required: the other answers are "unknown" by default.

    Attributes:
        kind: The name of the kind, as `Source.kind` and the manifest have it.
        position: What it makes of an offset.
        has_gaps: Whether a range of its offsets may have fewer rows than offsets.
        is_direct: Whether a query can run from here to a sink without micro-batches: it then has `load_from`.
    """

    kind: ClassVar[str]
    position: ClassVar[type[Position]] = Position
    has_gaps: ClassVar[bool] = False
    is_direct: ClassVar[bool] = False

    @abstractmethod
    def load(self, source: AnySource, context: SourceContext, name: str) -> "DataFrame":
        """Return a source as a DataFrame, without its watermark.

        Args:
            context: The session, the target and the pins of the run.
            name: Its name in the checkpoint.
        """

    def open(self, source: AnySource, context: SourceContext, name: str) -> "DataFrame":
        """Return a source as a DataFrame, with its watermark; where it streams, its rows are counted."""
        rows = self.load(source, context, name)
        if not source.streaming:
            return rows
        rows = observed_input(rows, name, source.watermark)
        if source.watermark is None:
            return rows
        return rows.withWatermark(source.watermark.column, spark_interval(source.watermark.delay))

    def load_from(self, source: AnySource, context: SourceContext, offset: str) -> "DataFrame":
        """Return a source from an offset on, without a name and a limit.

        Args:
            context: The session and the target.
            offset: The offset, as the checkpoint has it.

        Raises:
            NotImplementedError: The kind is not `is_direct`.
        """
        raise NotImplementedError

    def bound(self, source: AnySource, target: "Target") -> Source:
        """Return a source as a target binds it: a feed is a folder or a topic, any other source is itself.

        Raises:
            ConfigurationError: The target does not bind it.
        """
        return source

    def parse(self, offset: SourceOffset) -> Position | None:
        """Return the position in an offset; None where a source of this kind did not write it, or nobody knows."""
        return self.position.of(offset)

    def binding(self, source: AnySource, target: "Target") -> Binding | None:
        """Return the identity of what a source reads, whose `kind` is that of the source; None where it has none.

        Raises:
            TransientError: The source cannot be reached now.
            TerminalError: It refuses this user, or is missing.
        """
        return None

    def describe_binding(self, binding: Binding) -> str:
        """Return a binding for people."""
        return str(binding)

    def difference(self, source: AnySource, recorded: Binding, now: Binding) -> str | None:
        """Return how a binding differs from the recorded one, as half a sentence; None where it is the same."""
        return None if recorded == now else self.changed(recorded, now)

    def changed(self, recorded: Binding, now: Binding) -> str:
        """Return that a source reads something else than its checkpoint continues, as half a sentence."""
        return f"reads {self.describe_binding(now)}, and its checkpoint continues {self.describe_binding(recorded)}"

    def table(self, source: AnySource, lake: "Lake") -> "TableRef | None":
        """Return the folder of the Delta table that a source reads; None for other sources."""
        return None

    def first_version(self, source: AnySource, lake: "Lake", recorded: int | None) -> int | None:
        """Return the version of a table that a new reader begins with; None where its options say it, and elsewhere.

        Args:
            recorded: The version that an earlier run has decided; None before the first run.
        """
        return None

    def signature(self, source: AnySource, lake: "Lake") -> Hashable:
        """Return a value that differs once a snapshot has other data, without Spark; None where nobody knows.

        The snapshots of tables have versions instead.
        """
        return None

    def inferred_schema(self, source: AnySource, spark: "SparkSession") -> str | None:
        """Return the columns of a source as DDL, inferred from its data; None where they are declared or fixed.

        Raises:
            TerminalError: It has no data.
        """
        return None

    def backlog(self, source: AnySource, reading: Reading) -> Backlog:
        """Return the data that a source has and no batch has read.

        Raises:
            TransientError: The source cannot be reached now.
            TerminalError: There is no such folder, topic or table, or this user may not read it.
            DataLossError: It no longer has the data that comes next.
        """
        return Backlog(1, "unknown", f"{source.describe()} has no backlog without Spark")

    def missing_from_batch(
        self, source: AnySource, reading: Reading, planned: SourceOffset, now: Binding | None
    ) -> tuple[str, ...]:
        """Return the files of a batch that must be repeated which are missing: Spark leaves them out without an error.

        Args:
            reading: How far it was read before the batch.
            planned: The position up to which the batch reads.
            now: The binding of this run; that of the record may be an earlier one.
        """
        return ()

    def readdressed(self, recorded: Binding, now: Binding) -> Callable[[str], str] | None:
        """Return the address now of a file in the source's own log; None where the files have not moved."""
        return None

    def expiry(self, source: AnySource, reading: Reading) -> Expiry | None:
        """Return when unread data may be removed; None where none is, or nobody knows.

        Raises:
            TransientError: The source cannot be reached now.
        """
        return None

    def rows(self, source: AnySource, reading: Reading, end: SourceOffset) -> int | None:
        """Return the number of rows from the position of a reading to an end; None where it is unknown."""
        return None

    def newest_event(self, source: AnySource, reading: Reading, end: SourceOffset) -> int | None:
        """Return the newest time in the column of the watermark from the position of a reading to an end.

        Returns:
            Milliseconds since the epoch; None where it is unknown, and where there is none.
        """
        return None

    def load_again(
        self, source: AnySource, context: SourceContext, reading: Reading, end: SourceOffset
    ) -> "DataFrame | None":
        """Return the rows from the position of a reading to an end once more, as a DataFrame that does not stream.

        Rows that the source no longer has are left out. None where the kind cannot read them again.
        """
        return None

    def span(self, source: AnySource, reading: Reading, period: Period) -> SourceSpan | None:
        """Return what is read again of what the stream has read; None where a source has no times of its own.

        Args:
            period: The time of what is read.

        Raises:
            TransientError: The source cannot be reached now.
        """
        return None

    def span_read(self, reading: Reading) -> SourceSpan:
        """Return all that a checkpoint has read of a source."""
        return SourceSpan(reads="all")

    def missing(self, source: AnySource, reading: Reading) -> tuple[str, ...]:
        """Return what a source no longer has of what the stream has read, a sentence each.

        Raises:
            TransientError: The source cannot be reached now.
        """
        return ()

    def first_offsets(self, source: AnySource, target: "Target") -> Offsets:
        """Return the first offset of each partition; empty where a source has none.

        Raises:
            TransientError: The source cannot be reached now.
        """
        return {}

    def now(self, source: AnySource, reading: Reading) -> Start:
        """Return the end of a source now.

        Raises:
            TransientError: The source cannot be reached now.
            TerminalError: It does not exist, or has no end that could be known.
        """
        raise TerminalError(
            f"the end of {source.describe()} is not known.",
            fix="read it from its beginning: --from earliest.",
            code="start-invalid",
        )

    def start_at(self, reading: Reading, wanted: Any) -> Start:
        """Return the start of a source at offsets that a person names.

        Args:
            wanted: The offsets: JSON data.

        Raises:
            TerminalError: It has no such offsets.
        """
        raise TerminalError(
            f"its source {reading.name!r} is of the kind {self.kind!r}, which has no such offsets.",
            fix="give offsets by topic and partition, or a version of a table; or --from now.",
            code="start-invalid",
        )

    def start_where_it_is(self, reading: Reading, raw: str) -> Start:
        """Return the start of a source that a person does not name: its position is kept.

        Raises:
            TerminalError: A new checkpoint cannot have its position.
        """
        return Start(offset=raw)

    def fits(self, source: AnySource, reading: Reading) -> bool:
        """Return whether a source is what an adopted checkpoint has read."""
        return False

    def has_read(self, reading: Reading) -> str:
        """Return what an adopted checkpoint has read of a source, for people; empty where it is of another kind."""
        return ""

    def continuation(
        self, source: AnySource, reading: Reading, now: Binding, *, from_beginning: bool
    ) -> Continuation | None:
        """Return how a source continues in another binding; None where its position means nothing there.

        Args:
            reading: How far the stream has read it, in the recorded binding.
            now: The binding in which it continues.
            from_beginning: Whether everything in it is read.

        Raises:
            TerminalError: The new binding does not have the position.
        """
        return None

    def may_have_gaps(self, source: AnySource, target: "Target") -> bool:
        """Return whether a source has offsets without a row now, such as those of compacted messages."""
        return self.has_gaps

    def external(self, source: AnySource, target: "Target | None") -> Iterator[ExternalData]:
        """Yield what a source reads, as Dagster shows it; nothing for the table of another stream.

        Args:
            target: The target; None where it is left open.
        """
        description = source.describe()
        yield ExternalData(
            path=other_key(description), description=description, metadata={SOURCE: description}
        )


def observed_input(rows: "DataFrame", name: str, watermark: Watermark | None = None) -> "DataFrame":
    """Return rows that are counted where they enter the function, with their newest event time.

    Spark's own count of input rows is of reads: it misses rows that a pushed filter leaves out, and has rows twice
    that are read twice. Of the event times, Spark reports those of one source only.
    """
    from pyspark.sql import functions as F

    metrics = [F.count(F.lit(1)).alias("rows"), *newest_event_of(rows, watermark)]
    return rows.observe(f"{READ_OBSERVATION}{name}", *metrics)


def newest_event_of(rows: "DataFrame", watermark: Watermark | None) -> "list[Column]":
    """Return the aggregate of the newest event time; none where there is no watermark on a timestamp."""
    from pyspark.sql import functions as F

    if watermark is None or (watermark.column, "timestamp") not in rows.dtypes:
        return []
    return [F.unix_millis(F.max(F.col(watermark.column))).alias(NEWEST_EVENT)]

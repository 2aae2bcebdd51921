"""The base of all sources, and the table of another stream as a source. Needs no Spark."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from tidemill.definitions.arguments import Declared
from tidemill.errors import DefinitionError
from tidemill.text.durations import parse_duration

if TYPE_CHECKING:
    from tidemill.text.catalog_name import CatalogName
    from tidemill.text.names import StreamName


ReadingMode = Literal["append", "changes", "static"]
# A restart reads the last committed batch's file list again, about 3 ms per file, so batches stay small.
MAX_FILES_PER_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late rows may arrive: Spark guide, "Handling Late Data and Watermarking".

    Attributes:
        column: The event-time column, a timestamp.
        delay: How far a row may be behind the newest event time seen.
        idle_after: How long the source may have no new events before the others no longer wait for it; None where
            they always do.
    """

    column: str
    delay: timedelta
    idle_after: timedelta | None = None


@dataclass(frozen=True)
class Source(Declared, ABC):
    """Base of all sources: what is read, as data. The connector of its kind loads it.

    Attributes:
        kind: The kind of source, which decides its connector.
        watermark: Set through `with_watermark`.
    """

    kind: ClassVar[str]
    watermark: Watermark | None = field(default=None, kw_only=True)

    @property
    def streaming(self) -> bool:
        """Whether new data in it triggers the stream; a snapshot does not."""
        return True

    @property
    def never_streams(self) -> str:
        """Why no source of its kind streams, with the way around, as a sentence; empty where one can."""
        return ""

    @property
    def feed_name(self) -> str | None:
        """The name of a feed, whose records one dedicated stream ingests and validates; None for other sources."""
        return None

    @property
    def reads_changes(self) -> bool:
        """Whether it reads the change data feed of a table."""
        return False

    @property
    def infers_schema(self) -> bool:
        """Whether the first run infers its columns from its data."""
        return False

    @property
    def upstream(self) -> "StreamName | None":
        """The stream whose table it reads; None for other sources."""
        return None

    @property
    def catalog_table(self) -> "CatalogName | None":
        """The table of a catalog that it reads by its name; None for other sources."""
        return None

    def at(self, location: str) -> Self:
        """Return the same source with the location that a catalog has for its table.

        Raises:
            NotImplementedError: It reads no table of a catalog.
        """
        raise NotImplementedError

    def with_watermark(
        self, column: str, delay: str | timedelta, *, idle_after: str | timedelta | None = None
    ) -> Self:
        """Return the same source with a watermark.

        The watermark of a stream with several such sources is that of the slowest one. Across runs it is what a
        query that never stops would have: each run continues with the newest event time of every source.

        Args:
            column: The event-time column.
            delay: How late rows may arrive: `"2 hours"`.
            idle_after: How long the source may have no new events before it no longer holds the watermark back. Its
                rows that arrive later and are behind the watermark are late, and counted as such. By default the
                source always holds the watermark back.

        Raises:
            DefinitionError: The column or the delay is not valid, the source is a snapshot, or it already has a
                watermark.
        """
        if not self.streaming:
            raise DefinitionError(
                f"{self.describe()}: a snapshot has no watermark; put it on a streaming source.",
                code="snapshot-not-streamed",
            )
        if self.watermark is not None:
            raise DefinitionError(
                f"{self.describe()}: it already has a watermark on {self.watermark.column!r}.",
                code="watermark-taken",
            )
        if not isinstance(column, str) or not column:
            raise DefinitionError(
                f"{self.describe()}: watermark column is {column!r}; name an event-time column."
            )
        delay = parse_duration(delay, field=f"{self.describe()}: watermark delay")
        if idle_after is not None:
            idle_after = parse_duration(idle_after, field=f"{self.describe()}: idle_after")
        return replace(self, watermark=Watermark(column, delay, idle_after))

    @abstractmethod
    def describe(self) -> str:
        """Return a short description, for messages and lineage."""


@dataclass(frozen=True, kw_only=True)
class TableSource(Source):
    """A Delta table that is read in one of three ways.

    Attributes:
        mode: `append` reads new rows, `changes` the change data feed, `static` a snapshot.
    """

    kind = "delta"
    mode: ReadingMode = "append"

    @property
    def streaming(self) -> bool:
        """Whether new data in it triggers the stream; a snapshot does not."""
        return self.mode != "static"

    @property
    def reads_changes(self) -> bool:
        """Whether the change data feed is read."""
        return self.mode == "changes"


@dataclass(frozen=True, kw_only=True)
class StreamTable(TableSource):
    """The table of another stream, without its bookkeeping columns.

    A stream creates it: the stream itself stands for its new rows, `.changes()` for its change data feed, `.static()`
    for a snapshot.

    Attributes:
        stream: The stream that writes the table.
        is_merge: Whether a merge writes the table, which then has tombstones.
        max_files_per_batch: The most files per micro-batch; set through `limited`.
        max_bytes_per_batch: About the most bytes of files per micro-batch, in addition; likewise.
        definition: The stream itself, which may belong to another pipeline; None where only its name is known.
    """

    stream: "StreamName"
    is_merge: bool
    max_files_per_batch: int = MAX_FILES_PER_BATCH
    max_bytes_per_batch: int | None = None
    definition: object = field(default=None, repr=False, compare=False)

    @property
    def upstream(self) -> "StreamName":
        """The stream that writes the table."""
        return self.stream

    def limited(
        self, *, max_files_per_batch: int = MAX_FILES_PER_BATCH, max_bytes_per_batch: int | None = None
    ) -> "StreamTable":
        """Return the same reading with limits of a micro-batch.

        Args:
            max_files_per_batch: The most files.
            max_bytes_per_batch: About the most bytes of files, in addition.

        Raises:
            DefinitionError: A limit is not a positive number, or the reading is a snapshot.
        """
        if not self.streaming:
            raise DefinitionError(
                f"{self.describe()}: a snapshot is read whole, so it takes no limits.",
                code="snapshot-not-streamed",
            )
        positive(max_files_per_batch, field=f"{self.describe()}: max_files_per_batch")
        positive(max_bytes_per_batch, field=f"{self.describe()}: max_bytes_per_batch")
        return replace(self, max_files_per_batch=max_files_per_batch, max_bytes_per_batch=max_bytes_per_batch)

    def describe(self) -> str:
        """Return the table and how it is read."""
        return f"{self.stream} ({self.mode})"


def positive(value: int | None, *, field: str) -> int | None:
    """Return a limit that is None or at least 1.

    Raises:
        DefinitionError: With the field and the value.
    """
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise DefinitionError(f"{field} is {value!r}: it must be a whole number of at least 1.")
    return value

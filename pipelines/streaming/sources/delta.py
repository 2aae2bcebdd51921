"""Delta tables as a source: any table by its path, and the table of another stream."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from pipelines.streaming.columns import BOOKKEEPING, DELETED
from pipelines.streaming.errors import DefinitionError
from pipelines.streaming.names import StreamName
from pipelines.streaming.sources.files import MAX_FILES_PER_BATCH
from pipelines.streaming.sources.known_options import DELTA_OPTIONS, known_options
from pipelines.streaming.sources.source import Source, SourceContext, positive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamReader


_STARTING = frozenset({"startingversion", "startingtimestamp"})
# The snapshot that a new reader begins with arrives in the order of its files: in several batches a watermark
# would drop rows as late, and VACUUM could remove files between two of them.
_ONE_BATCH = str(2**31 - 1)

ReadingMode = Literal["append", "changes", "static"]


@dataclass(frozen=True, kw_only=True)
class DeltaSource(Source):
    """A Delta table by its path, such as one that another system writes.

    Attributes:
        path: The table's folder.
        mode: `append` reads new rows, `changes` the change data feed, `static` a snapshot.
        max_files_per_batch: The most files per micro-batch.
        max_bytes_per_batch: About the most bytes of files per micro-batch, in addition.
        options: Further options of Delta's streaming source.
    """

    path: str
    mode: ReadingMode = "append"
    max_files_per_batch: int = MAX_FILES_PER_BATCH
    max_bytes_per_batch: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise DefinitionError(f"DeltaSource: path is {self.path!r}; name a table's folder.")
        positive(self.max_files_per_batch, what=f"DeltaSource {self.path!r}: max_files_per_batch")
        positive(self.max_bytes_per_batch, what=f"DeltaSource {self.path!r}: max_bytes_per_batch")
        known_options(self.options, DELTA_OPTIONS, what=f"DeltaSource {self.path!r}")

    @property
    def streaming(self) -> bool:
        """Whether new data in it triggers the stream; a snapshot does not."""
        return self.mode != "static"

    def static(self) -> "DeltaSource":
        """Return a snapshot of the table, pinned for the run."""
        return replace(self, mode="static", watermark=None)

    def describe(self) -> str:
        """Return the table and how it is read."""
        return f"Delta table {self.path} ({self.mode})"

    def load(self, context: SourceContext, name: str) -> "DataFrame":
        """Return the table's rows; only new ones where it streams."""
        if self.mode == "static":
            return snapshot(context, self.path, context.pins[name])
        start = context.starts.get(name, "declared")
        options = dict(self.options)
        if start != "declared":
            options = {key: value for key, value in options.items() if key.lower() not in _STARTING}
        given = {key.lower() for key in options}
        reader = context.spark.readStream.name(name).format("delta").options(**options)
        if isinstance(start, int):
            reader = reader.option("startingVersion", str(start))
        if self.mode == "changes":
            reader = reader.option("readChangeFeed", "true")
        begins_with_snapshot = start == "declared" and not given & _STARTING
        unlimited = self.max_files_per_batch == MAX_FILES_PER_BATCH and self.max_bytes_per_batch is None
        if begins_with_snapshot and unlimited:
            return reader.option("maxFilesPerTrigger", _ONE_BATCH).load(self.path)
        return _limited(reader, self.max_files_per_batch, self.max_bytes_per_batch).load(self.path)


@dataclass(frozen=True, kw_only=True)
class StreamReading(Source):
    """The table of another stream, without its bookkeeping columns.

    A stream creates it: the stream itself stands for its new rows, `.changes()` for its change data feed, `.static()`
    for a snapshot.

    Attributes:
        stream: The stream that writes the table.
        mode: `append`, `changes` or `static`.
        is_merge: Whether a merge writes the table, which then has tombstones.
        max_files_per_batch: The most files per micro-batch; set through `limited`.
        max_bytes_per_batch: About the most bytes of files per micro-batch, in addition; likewise.
        definition: The stream itself, which may belong to another pipeline; None where only its name is known.
    """

    stream: StreamName
    mode: ReadingMode
    is_merge: bool
    max_files_per_batch: int = MAX_FILES_PER_BATCH
    max_bytes_per_batch: int | None = None
    definition: object = field(default=None, repr=False, compare=False)

    @property
    def streaming(self) -> bool:
        """Whether new data in it triggers the stream; a snapshot does not."""
        return self.mode != "static"

    @property
    def upstream(self) -> StreamName:
        """The stream that writes the table."""
        return self.stream

    def limited(
        self, *, max_files_per_batch: int = MAX_FILES_PER_BATCH, max_bytes_per_batch: int | None = None
    ) -> "StreamReading":
        """Return the same reading with limits of a micro-batch.

        Args:
            max_files_per_batch: The most files.
            max_bytes_per_batch: About the most bytes of files, in addition.

        Raises:
            DefinitionError: A limit is not a positive number, or the reading is a snapshot.
        """
        if not self.streaming:
            raise DefinitionError(f"{self.describe()}: a snapshot is read whole, so it takes no limits.")
        positive(max_files_per_batch, what=f"{self.describe()}: max_files_per_batch")
        positive(max_bytes_per_batch, what=f"{self.describe()}: max_bytes_per_batch")
        return replace(self, max_files_per_batch=max_files_per_batch, max_bytes_per_batch=max_bytes_per_batch)

    def describe(self) -> str:
        """Return the table and how it is read."""
        return f"{self.stream} ({self.mode})"

    def load(self, context: SourceContext, name: str) -> "DataFrame":
        """Return the table's rows, without tombstones."""
        table = context.target.lake.table(self.stream)
        if self.mode == "static":
            rows = snapshot(context, str(table), context.pins[name])
            if self.is_merge:
                rows = rows.where(f"NOT {DELETED}")
        else:
            reader = context.spark.readStream.name(name).format("delta")
            start = context.starts.get(name, "snapshot")  # run/new_readers.py decides
            if start == "snapshot":
                reader = reader.option("maxFilesPerTrigger", _ONE_BATCH)
            else:
                reader = _limited(reader, self.max_files_per_batch, self.max_bytes_per_batch)
            if isinstance(start, int):
                reader = reader.option("startingVersion", str(start))
            if self.mode == "changes":
                rows = reader.option("readChangeFeed", "true").load(str(table))
                if self.is_merge:
                    rows = _without_tombstones(rows)
            else:
                # The guard judges commits that removed or changed rows (run/guard.py).
                rows = reader.option("skipChangeCommits", "true").load(str(table))
        return rows.drop(*BOOKKEEPING, DELETED)


def snapshot(context: SourceContext, path: str, version: int) -> "DataFrame":
    """Return a table as of one version."""
    return context.spark.read.format("delta").option("versionAsOf", str(version)).load(path)


def _limited(
    reader: "DataStreamReader", max_files_per_batch: int, max_bytes_per_batch: int | None
) -> "DataStreamReader":
    reader = reader.option("maxFilesPerTrigger", str(max_files_per_batch))
    if max_bytes_per_batch:
        reader = reader.option("maxBytesPerTrigger", str(max_bytes_per_batch))
    return reader


def _without_tombstones(changes: "DataFrame") -> "DataFrame":
    """Return the changes of what readers of the table see; the sink writes none across (sinks/changes.py)."""
    return changes.where(f"NOT {DELETED}")

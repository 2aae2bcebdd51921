"""Delta tables as a source: any table by its path, and the table of another stream."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from pipelines.streaming.columns import BOOKKEEPING, DELETED
from pipelines.streaming.errors import DefinitionError
from pipelines.streaming.names import StreamName
from pipelines.streaming.sources.known_options import DELTA_OPTIONS, known_options
from pipelines.streaming.sources.source import Source, SourceContext, positive

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

ReadingMode = Literal["append", "changes", "static"]


@dataclass(frozen=True, kw_only=True)
class DeltaSource(Source):
    """A Delta table by its path, such as one that another system writes.

    Attributes:
        path: The table's folder.
        mode: `append` reads new rows, `changes` the change data feed, `static` a snapshot.
        max_files_per_batch: The most files per micro-batch.
        options: Further options of Delta's streaming source.
    """

    path: str
    mode: ReadingMode = "append"
    max_files_per_batch: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise DefinitionError(f"DeltaSource: path is {self.path!r}; name a table's folder.")
        positive(self.max_files_per_batch, what=f"DeltaSource {self.path!r}: max_files_per_batch")
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
        reader = context.spark.readStream.name(name).format("delta").options(**self.options)
        if self.mode == "changes":
            reader = reader.option("readChangeFeed", "true")
        if self.max_files_per_batch:
            reader = reader.option("maxFilesPerTrigger", str(self.max_files_per_batch))
        return reader.load(self.path)


@dataclass(frozen=True, kw_only=True)
class StreamReading(Source):
    """The table of another stream, without its bookkeeping columns.

    A stream creates it: the stream itself stands for its new rows, `.changes()` for its change data feed, `.static()`
    for a snapshot.

    Attributes:
        stream: The stream that writes the table.
        mode: `append`, `changes` or `static`.
        is_merge: Whether a merge writes the table, which then has tombstones.
    """

    stream: StreamName
    mode: ReadingMode
    is_merge: bool

    @property
    def streaming(self) -> bool:
        """Whether new data in it triggers the stream; a snapshot does not."""
        return self.mode != "static"

    @property
    def upstream(self) -> StreamName:
        """The stream that writes the table."""
        return self.stream

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
            if _has_first_commit(table):
                # From the first commit on: an initial snapshot would arrive in the order of its files, and a
                # watermark would drop rows as late.
                reader = reader.option("startingVersion", "0")
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


def _has_first_commit(table: "Path") -> bool:
    return (table / "_delta_log" / f"{0:020d}.json").exists()


def _without_tombstones(changes: "DataFrame") -> "DataFrame":
    """Return the changes of what readers of the table see; the sink writes none across (sinks/changes.py)."""
    return changes.where(f"NOT {DELETED}")

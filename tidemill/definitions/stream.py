"""Stream: one table and the query that fills it. Needs no Spark."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.definitions.backfill_by import BackfillBy
from tidemill.definitions.bounds import Checks
from tidemill.definitions.expectations import Expect
from tidemill.definitions.options import QueryOptions
from tidemill.definitions.run_when import RunWhen
from tidemill.definitions.sink import Sink, TableSink
from tidemill.definitions.source import MAX_FILES_PER_BATCH, Source, StreamTable
from tidemill.errors import DefinitionError
from tidemill.text.names import StreamName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Transform = Callable[..., DataFrame]


@dataclass(frozen=True, eq=False)
class Stream:
    """One table and the query that fills it, declared by `Pipeline.stream`.

    A stream is callable: `attribution(df, df, df)` runs the function. As a source of another stream it stands
    for its new rows; `.changes()` and `.static()` stand for its changes and for a snapshot.

    Attributes:
        name: `<pipeline>/<stream>`.
        function: The transform, from DataFrames to one DataFrame.
        sources: The sources it reads; the keys are the function's arguments and the names in the checkpoint.
        sinks: What it writes, in order; the last one is the main table.
        expect: Rules on the output.
        query: How the query runs.
        checks: Bounds and severities of its checks.
        description: The function's docstring.
        owners: Who is responsible for it, as Dagster owners (an e-mail address, or `team:name`).
        tags: Labels.
        run_when: When its backlog starts a run.
        record_idle: Whether Dagster adds a materialization for an idle run, which schedules of
            readers (`AutomationCondition.on_cron`) and freshness policies count.
        backfill_by: The column whose values a backfill selects by, and its partitions in Dagster.
        lookback: How much of the sources a backfill reads before and after its range, by the times of files, messages
            and commits; None: everything.
        declared_at: `file:line` of the declaration.
    """

    name: StreamName
    function: "Transform"
    sources: Mapping[str, Source]
    sinks: tuple[Sink, ...]
    expect: tuple[Expect, ...] = ()
    query: QueryOptions = field(default_factory=QueryOptions)
    checks: Checks = field(default_factory=Checks)
    description: str = ""
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    run_when: RunWhen = field(default_factory=RunWhen)
    record_idle: bool = False
    backfill_by: BackfillBy | None = None
    lookback: timedelta | None = None
    declared_at: str = ""

    def __call__(self, *inputs: "DataFrame") -> "DataFrame":
        """Return the function's output for these inputs."""
        return self.function(*inputs)

    def __repr__(self) -> str:
        return f"Stream({self.name})"

    @property
    def tables(self) -> tuple[TableSink, ...]:
        """The sinks that are Delta tables, the main table last."""
        return tuple(sink for sink in self.sinks if isinstance(sink, TableSink))

    @property
    def main(self) -> TableSink:
        """The sink of the main table, whose commit is the commit point of a batch."""
        return self.tables[-1]

    @property
    def external_sinks(self) -> tuple[Sink, ...]:
        """The sinks that are not tables."""
        return tuple(sink for sink in self.sinks if not isinstance(sink, TableSink))

    @property
    def quarantines_rows(self) -> bool:
        """Whether rows of the output can go to quarantine."""
        return any(rule.quarantines for rule in self.expect)

    @property
    def is_merge(self) -> bool:
        """Whether the main table is written by a merge."""
        return self.main.rows_are_replaced

    @property
    def upstreams(self) -> Mapping[StreamName, bool]:
        """The streams it reads; True where new rows in one trigger this stream."""
        upstreams: dict[StreamName, bool] = {}
        for source in self.sources.values():
            if source.upstream is not None:
                upstreams[source.upstream] = upstreams.get(source.upstream, False) or source.streaming
        return upstreams

    def reading(self) -> StreamTable:
        """Return its new rows as a source.

        Raises:
            DefinitionError: The table is a merge table or is rewritten, so it has no rows that are only new; or the
                stream has no table.
        """
        self._check_has_rows()
        if self.is_merge:
            raise DefinitionError(
                f"{self.name} is a merge table: a merge rewrites rows, so it cannot be streamed as it is. "
                f"Use {self.name.stream}.changes() for its changes or {self.name.stream}.static() for a snapshot.",
                code="table-not-streamable",
            )
        if self.query.output_mode == "complete":
            raise DefinitionError(
                f"{self.name} is rewritten by every batch (output mode complete), so it cannot be streamed. "
                f"Use {self.name.stream}.static() for a snapshot.",
                code="table-not-streamable",
            )
        return StreamTable(stream=self.name, mode="append", is_merge=False, definition=self)

    def with_watermark(self, column: str, delay: str, *, idle_after: str | None = None) -> StreamTable:
        """Return its new rows as a source with a watermark; see `Source.with_watermark`."""
        return self.reading().with_watermark(column, delay, idle_after=idle_after)

    def limited(
        self, *, max_files_per_batch: int = MAX_FILES_PER_BATCH, max_bytes_per_batch: int | None = None
    ) -> StreamTable:
        """Return its new rows as a source with limits of a micro-batch; see `StreamTable.limited`."""
        return self.reading().limited(
            max_files_per_batch=max_files_per_batch, max_bytes_per_batch=max_bytes_per_batch
        )

    def changes(self) -> StreamTable:
        """Return its change data feed as a source: `_change_type`, `_commit_version`, `_commit_timestamp`.

        Raises:
            DefinitionError: The table is not a merge table, so it has no change data feed.
        """
        self._check_has_rows()
        if self.query.output_mode == "complete":
            raise DefinitionError(
                f"{self.name} is rewritten by every batch (output mode complete): it has no change data feed. "
                f"Use {self.name.stream}.static() for a snapshot.",
                code="change-feed-missing",
            )
        if not self.is_merge:
            raise DefinitionError(
                f"{self.name} is an append table: it has no change data feed. "
                f"Use {self.name.stream} itself for its new rows.",
                code="change-feed-missing",
            )
        return StreamTable(stream=self.name, mode="changes", is_merge=True, definition=self)

    def static(self) -> StreamTable:
        """Return a snapshot as a source: its Delta version is pinned for the run, and new data triggers nothing.

        Raises:
            DefinitionError: The stream has no table.
        """
        self._check_has_rows()
        return StreamTable(stream=self.name, mode="static", is_merge=self.is_merge, definition=self)

    def _check_has_rows(self) -> None:
        if not self.main.has_rows:
            raise DefinitionError(
                f"{self.name} has no table sink: its table has one row per batch, and its rows are only where its "
                "sinks write them. Add a DeltaAppend() to its sinks, and read that."
            )

"""One run of one stream whose lease is held: steps 3 to 7 of a run (docs/concepts.md).

3. Repair: lines that a killed run left out of the ledger are written; a batch that was planned and not committed
   is repeated alone, with the static versions of its first attempt; a no-data batch that a kill prevented is run.
4. A session of the stream's own.
5. The available-now query; or, where the run follows its sources, one with a processing-time trigger, or one in a
   mode of low latency (direct.py).
6. The guard of the edges, before and after the query.
7. Waiting on a thread of its own, and the records: a ledger line per batch, the manifest at the end.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

from tidemill.catalog.registrar import Registrar
from tidemill.catalog.sources import resolved_tables
from tidemill.checkpoint import Tail, read_tail_or_empty
from tidemill.connectors.connector import SourceContext
from tidemill.plans.operators import have_timers
from tidemill.records.batch import BatchRecord
from tidemill.records.lease import Lease
from tidemill.records.stream_records import Snapshot
from tidemill.run.decide.decision import RunDecision, decide_run
from tidemill.run.decide.watermark import newest_events, watermark_to_continue
from tidemill.run.execute import direct, modes
from tidemill.run.execute.follow import Follow, after, interruption, is_removal
from tidemill.run.execute.progress import Live
from tidemill.run.execute.recorder import Recorder
from tidemill.run.execute.results import Outcome, StreamResult
from tidemill.run.execute.sinks_behind import record_behind
from tidemill.run.execute.stream_queries import StreamQueries, show_batches
from tidemill.run.spark import classic
from tidemill.run.spark.engine import Engine, record_jvm, session_of
from tidemill.run.tables import new_readers, rewound
from tidemill.run.tables.guard import check_edges
from tidemill.run.tables.missing_files import check_planned_files, check_unread_files
from tidemill.run.tables.schemas import schemas_of, with_schemas
from tidemill.run.tables.versions import current_versions, with_read_commits
from tidemill.target.target import Target
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.definitions.stream import Stream
    from tidemill.storage.store import Store


@dataclass(slots=True)
class StreamRun:
    """One run of one stream.

    Attributes:
        decision: What the run does to it.
        lease: The held lease.
        canceled: Set when the run is asked to stop.
        first_batch: The first batch that counts as one of this run: those of its earlier attempts do.
        live: Where the run shows how far it is.
        follow: Reads what arrives as well, until it is asked to end.
        once: Reads all that waits in a single batch, whatever the limits of the sources are.
    """

    decision: RunDecision
    target: Target
    engine: Engine
    run_id: str
    lease: Lease
    canceled: Event
    first_batch: int
    live: Live = field(default_factory=Live)
    follow: Follow | None = None
    once: bool = False
    _spark_seconds: float = field(init=False, default=0.0)
    _recorder: Recorder = field(init=False)
    _direct: direct.DirectQuery = field(init=False)
    _queries: StreamQueries | None = field(init=False, default=None)

    @property
    def stream(self) -> "Stream":
        """The stream that runs."""
        return self.decision.stream

    @property
    def stopped(self) -> Event:
        """Set when no query of this run is running."""
        if self._queries is not None and self._queries.running is not None:
            return self._queries.running.done
        stopped = Event()
        stopped.set()
        return stopped

    def run(self, *, planned_only: bool = False) -> StreamResult:
        """Run the stream.

        Args:
            planned_only: Whether only the batch that is planned runs, and nothing more is read.

        Raises:
            TidemillError: A failure that Tidemill knows.
            Exception: Any other failure, as Spark raised it.
        """
        started = time.monotonic()
        self._recorder = Recorder(
            self._snapshot,
            self.decision.manifest,
            run_id=self.run_id,
            lease=self.lease,
            newest_events=partial(newest_events, self.stream, self.target, self._snapshot),
        )
        if not self.decision.has_events_to_read_again:
            self._recorder.complete()
        self._direct = direct.DirectQuery(
            stream=self.stream,
            target=self.target,
            snapshot=self._snapshot,
            recorder=self._recorder,
            lease=self.lease,
            shows=partial(show_batches, self.live, self.stream.name),
        )
        if self.decision.needs_query or self.follow is not None:
            self._query(planned_only=planned_only)
        # The first stream of a run waits for Spark to start, which is not its own work.
        return self._result(time.monotonic() - started - self._spark_seconds)

    @property
    def _snapshot(self) -> Snapshot:
        return self.decision.snapshot

    @property
    def _registrar(self) -> Registrar | None:
        return None if self._queries is None else self._queries.registrar

    @property
    def _checkpoint(self) -> "Store":
        return self._snapshot.checkpoint

    def _tail(self) -> Tail:
        return read_tail_or_empty(self._checkpoint)

    def _query(self, *, planned_only: bool) -> None:
        started = time.monotonic()
        self.live.enter(self.stream.name, "starting Spark")
        with session_of(self.engine) as spark:
            self._spark_seconds = time.monotonic() - started
            self.live.enter(self.stream.name, "preparing")
            self._query_with(spark, planned_only=planned_only)

    def _query_with(self, spark: "SparkSession", *, planned_only: bool) -> None:
        confs = self.stream.query.confs(self.engine.default_partitions())
        for key, value in confs.items():
            spark.conf.set(key, value)
        record_jvm(self.lease, self.engine, spark)
        classic.use_scheduler_pool(spark, str(self.stream.name))
        lake, before = self.target.lake, self._snapshot.tail
        stream, sources = resolved_tables(self.stream, spark, lake, before, self.decision.sources)
        self.decision = replace(self.decision, stream=stream, sources=sources)
        self._read_events_again(spark)
        record_behind(self.stream, self.target, self._snapshot)
        sources = new_readers.with_starts(self.stream, lake, before, self.decision.sources)
        sources = with_schemas(self.stream, spark, sources)
        check_edges(self.stream, lake, before, sources)
        check_unread_files(self.stream, lake, before, sources)
        if not planned_only:  # a backfill checks what it needs itself
            check_planned_files(self.stream, self.target, self._snapshot, sources)
        self._direct.finish()  # of a run that was killed
        queries = self._queries = StreamQueries(
            decision=self.decision,
            target=self.target,
            lease=self.lease,
            canceled=self.canceled,
            live=self.live,
            recorder=self._recorder,
            spark=spark,
            confs=confs,
            sources=sources,
            registrar=Registrar.of(self.stream, self.target, self._snapshot.records, spark, self.lease.check),
        )
        queries.repair()
        if not planned_only:
            self._read_all(queries)
        queries.register()

    def _read_all(self, queries: StreamQueries) -> None:
        """Read what waits, or what arrives as well, and emit what is due."""
        lake = self.target.lake
        self._continue_watermark(queries, waiting=[*self.decision.counted, *self.decision.uncounted])
        self._pass_restores(queries)
        if self.follow is not None and self.follow.mode != "micro-batch":
            self._follow_directly(queries, self.follow)
        elif self.follow is not None:
            self._follow_sources(queries, self.follow)
        else:
            pins, limit = current_versions(self.stream, lake), self.stream.query.max_run
            trigger = {"once": True} if self.once else {"availableNow": True}
            enough = after(limit) if isinstance(limit, timedelta) else None
            counted = [*self.decision.counted]
            self._read(queries, pins, trigger=trigger, enough=enough, waiting=lambda: counted)

    def _read_events_again(self, spark: "SparkSession") -> None:
        """Write the lines that a killed run left out of the ledger, with the newest events of its batches."""
        if self.decision.has_events_to_read_again:
            context = SourceContext(spark, self.target, schemas=schemas_of(self.decision.sources))
            self._recorder.complete(
                partial(newest_events, self.stream, self.target, self._snapshot, context=context)
            )

    def _follow_sources(self, queries: StreamQueries, follow: Follow) -> None:
        """Run queries with a processing-time trigger, one after another, until the run is asked to end.

        A query runs until something needs a new one: another version of a table that it reads as static, timers
        that may be due, a watermark that is held back, or a commit of an upstream that removed rows, where Delta stops
        it for the guard to decide.
        """
        lake = self.target.lake
        while not follow.ended.is_set():
            pins = current_versions(self.stream, lake)
            enough = interruption(
                follow,
                self.stream,
                lake,
                pins=pins,
                has_timers=self._has_timers,
                is_held_back=self._is_held_back,
            )
            self._read(queries, pins, trigger=follow.trigger, enough=enough, waiting=self._unread)

    def _read(
        self,
        queries: StreamQueries,
        pins: dict[str, int],
        *,
        trigger: Mapping[str, Any],
        enough: Callable[[], bool] | None,
        waiting: Callable[[], Collection[str]],
    ) -> None:
        """Run a query and what follows the last row that it reads.

        Delta stops it at a commit that removed rows, which may land after the guard has looked, and the guard decides
        what that means. Where there are some that the user has accepted, or that a rewind took back, the query passes
        all of them, and the guard looks again at the end.
        """
        lake, before = self.target.lake, self._tail()
        passes = check_edges(self.stream, lake, before, queries.sources)
        try:
            queries.execute(pins, trigger=trigger, enough=enough, stops_at_removed=not passes)
        except Exception as error:
            if not is_removal(error):
                raise
            check_edges(self.stream, lake, self._tail(), queries.sources)
            self._pass_restores(queries)
            queries.execute(pins, trigger={"availableNow": True})
        self._continue_watermark(queries, waiting=waiting())
        self._fire_timers(queries)
        check_edges(self.stream, lake, before, queries.sources)

    def _follow_directly(self, queries: StreamQueries, follow: Follow) -> None:
        """Run a query in a mode of low latency, which begins where the first batch has ended."""

        def has_begun() -> bool:
            return follow.ended.is_set() or self._tail().latest_commit is not None

        if not has_begun():
            queries.execute({}, trigger=Follow().trigger, enough=has_begun)
        if follow.ended.is_set():
            return
        built = queries.build({}, stops_at_removed=False)

        def has_to_stop() -> bool:
            self._direct.record_now_and_then()
            return follow.ended.is_set()

        with modes.own_confs(queries.spark), modes.refusals(follow.mode):
            writer = self._direct.writer(queries.spark, follow.mode, built).trigger(**follow.trigger)
            started = queries.start(writer, expected=None)
            queries.wait(started, self._direct.take, self._direct.record, enough=has_to_stop)
        self._direct.finish()

    def _continue_watermark(self, queries: StreamQueries, *, waiting: Collection[str]) -> None:
        """Move the watermark to where a query that never stopped would have it, and emit what that closes."""
        tail = self._tail()
        watermark_ms = watermark_to_continue(self.stream, self._recorder.generation, tail, waiting)
        if watermark_ms is not None:
            self.lease.check()
            self._snapshot.writer().raise_watermark(tail, watermark_ms)
            queries.repair()

    def _is_held_back(self) -> bool:
        """Return whether a query that never stopped would have a higher watermark."""

        def behind(waiting: Collection[str]) -> bool:
            generation = self._recorder.generation
            return watermark_to_continue(self.stream, generation, self._tail(), waiting) is not None

        return behind(()) and behind(self._unread())

    def _unread(self) -> Collection[str]:
        """Return the sources that may have unread rows now."""
        decision = decide_run(self.stream, self.target)
        return [*decision.counted, *decision.uncounted]

    def _has_timers(self) -> bool:
        return have_timers(self._recorder.generation.operators)

    def _fire_timers(self, queries: StreamQueries) -> None:
        """Run one more batch where timers may be due: Spark itself would run empty ones until the query is stopped."""
        if not self._has_timers():
            return
        queries.repair()  # a no-data batch fires them as well
        tail = self._tail()
        if tail.next_start.kind == "continue" and tail.latest_commit is not None:
            self.lease.check()
            self._snapshot.writer().schedule_batch(tail)
            queries.repair()

    def _pass_restores(self, queries: StreamQueries) -> None:
        """Pass commits that a rewind of an upstream took back: see run/tables/rewound.py."""
        while True:
            tail = self._tail()
            detour = next(rewound.detours(self.stream, self.target.lake, self._checkpoint, tail), None)
            if detour is None:
                return
            self.lease.check()
            if detour.is_ahead:
                ends = {detour.source: detour.end}
                self._snapshot.writer().schedule_batch(tail, ends)
                queries.repair()
            else:
                self._snapshot.writer("restore").change_offsets(detour.passed)

    def _warnings(self, batches: tuple[BatchRecord, ...]) -> tuple[str, ...]:
        """Return what the stream's author may not expect, one sentence each."""
        decision = replace(self.decision, manifest=self._recorder.manifest)
        known = (*decision.warnings, *(() if self._registrar is None else self._registrar.warnings))
        ignored = sum(batch.rows_ignored or 0 for batch in batches)
        if not ignored or self.stream.query.output_mode != "update":
            return known
        return (
            *known,
            (
                f"{pluralize(ignored, 'update')} of its output did not raise sequence_by and changed nothing. "
                "Fix: leave sequence_by out, and the newest batch wins."
            ),
        )

    def _result(self, seconds: float) -> StreamResult:
        snapshot = self._snapshot.records.snapshot()
        batches = self._recorder.batches(first=self.first_batch)
        outcome: Outcome = "updated" if batches else "idle"
        records = self._recorder.generation.sources
        self._recorder.update(
            sources=with_read_commits(self.stream, self.target.lake, snapshot.tail, records)
        )
        self._recorder.finish(outcome)
        stateful = [batch for batch in batches if batch.state_rows is not None]
        return StreamResult(
            stream=self.stream.name,
            outcome=outcome,
            batches=batches,
            seconds=round(seconds, 3),
            watermark_ms=snapshot.next_watermark_ms,
            table=str(snapshot.records.table()),
            table_version=snapshot.records.table().log.latest_version(),
            generation=snapshot.generation,
            state_rows=stateful[-1].state_rows if stateful else None,
            state_bytes=stateful[-1].state_bytes if stateful else None,
            reason=", ".join(self.decision.reasons)
            or ("nothing new" if outcome == "idle" else "what arrived"),
            warnings=self._warnings(batches),
            lineage={} if self._queries is None else self._queries.lineage,
            observations={} if self._queries is None else self._queries.observations,
            catalog={} if self._registrar is None else self._registrar.tables,
        )

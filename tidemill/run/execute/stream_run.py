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
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

from tidemill.checkpoint import CheckpointFormatError, Tail, changes_to_apply, read_tail_or_empty
from tidemill.connectors.connector import SourceContext
from tidemill.connectors.feed import feed_of
from tidemill.connectors.registry import connector_of
from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.sink import CommitMetadata
from tidemill.errors import CanceledError, TidemillError
from tidemill.plans import state_compatibility as code_change
from tidemill.plans.lineage import Lineage
from tidemill.plans.observations import Observations
from tidemill.plans.operators import have_timers
from tidemill.records.batch import BatchRecord
from tidemill.records.lease import Lease
from tidemill.records.stream_records import Pins, Snapshot
from tidemill.run.batch.unfinished_quarantine import RefusedWriter, pending_validation, validating_as
from tidemill.run.batch.validation_rules import ValidationRules, rules_of, validation_confs
from tidemill.run.batch.writer import BatchWriter, Ingest
from tidemill.run.decide.decision import RunDecision, decide_run
from tidemill.run.decide.watermark import newest_events, watermark_to_continue
from tidemill.run.execute import direct, modes, query, relocation
from tidemill.run.execute.follow import Follow, after, interruption, is_removal
from tidemill.run.execute.progress import Live, expected_batches
from tidemill.run.execute.recorder import Recorder
from tidemill.run.execute.results import Outcome, StreamResult
from tidemill.run.execute.running_query import Progress, RunningQuery
from tidemill.run.execute.sinks_behind import record_behind
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
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from tidemill.definitions.stream import Stream
    from tidemill.storage.store import Store
    from tidemill.text.names import StreamName

_CHECK_REPARTITION = "spark.sql.streaming.checkUnfinishedRepartitionOnRestart"
_PARTITIONS = "spark.sql.shuffle.partitions"
_NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
_CHANGES_PER_SNAPSHOT = "spark.sql.streaming.stateStore.minDeltasForSnapshot"
# Compressed; fewer are applied in less time than most other steps of a start take.
_MANY_CHANGES = 4 << 20
# Of a query that runs the batch that was planned and not committed, and nothing else.
_REPEAT: Mapping[str, Any] = {"once": True}


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
    _running: RunningQuery | None = field(init=False, default=None)
    _sources: Mapping[str, SourceRecord] = field(init=False, default_factory=dict)
    _lineage: Lineage = field(init=False, default_factory=dict)
    _observations: Observations = field(init=False, default_factory=dict)

    @property
    def stream(self) -> "Stream":
        """The stream that runs."""
        return self.decision.stream

    @property
    def stopped(self) -> Event:
        """Set when no query of this run is running."""
        if self._running is not None:
            return self._running.done
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
        self._recorder.complete()
        self._direct = direct.DirectQuery(
            stream=self.stream,
            target=self.target,
            snapshot=self._snapshot,
            recorder=self._recorder,
            lease=self.lease,
            shows=partial(_show, self.live, self.stream.name),
        )
        if self.decision.needs_query or self.follow is not None:
            self._query(planned_only=planned_only)
        # The first stream of a run waits for Spark to start, which is not its own work.
        return self._result(time.monotonic() - started - self._spark_seconds)

    @property
    def _snapshot(self) -> Snapshot:
        return self.decision.snapshot

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
        record_behind(self.stream, self.target, self._snapshot)
        lake, before = self.target.lake, self._snapshot.tail
        sources = new_readers.with_starts(self.stream, lake, before, self.decision.sources)
        self._sources = with_schemas(self.stream, spark, sources)
        check_edges(self.stream, lake, before, self._sources)
        check_unread_files(self.stream, lake, before, self._sources)
        if not planned_only:  # a backfill checks what it needs itself
            check_planned_files(self.stream, self.target, self._snapshot, self._sources)
        self._direct.finish()  # of a run that was killed
        self._repair(spark, confs)
        if planned_only:
            return
        self._continue_watermark(spark, confs, waiting=[*self.decision.counted, *self.decision.uncounted])
        self._pass_restores(spark, confs)
        if self.follow is not None and self.follow.mode != "micro-batch":
            self._follow_directly(spark, confs, self.follow)
        elif self.follow is not None:
            self._follow_sources(spark, confs, self.follow)
        else:
            pins, limit = current_versions(self.stream, lake), self.stream.query.max_run
            trigger = {"once": True} if self.once else {"availableNow": True}
            enough = after(limit) if isinstance(limit, timedelta) else None
            counted = [*self.decision.counted]
            self._read(spark, confs, pins, trigger=trigger, enough=enough, waiting=lambda: counted)

    def _follow_sources(self, spark: "SparkSession", confs: dict[str, str], follow: Follow) -> None:
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
            self._read(spark, confs, pins, trigger=follow.trigger, enough=enough, waiting=self._unread)

    def _read(
        self,
        spark: "SparkSession",
        confs: dict[str, str],
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
        passes = check_edges(self.stream, lake, before, self._sources)
        try:
            self._execute(spark, confs, pins, trigger=trigger, enough=enough, stops_at_removed=not passes)
        except Exception as error:
            if not is_removal(error):
                raise
            check_edges(self.stream, lake, self._tail(), self._sources)
            self._pass_restores(spark, confs)
            self._execute(spark, confs, pins, trigger={"availableNow": True})
        self._continue_watermark(spark, confs, waiting=waiting())
        self._fire_timers(spark, confs)
        check_edges(self.stream, lake, before, self._sources)

    def _follow_directly(self, spark: "SparkSession", confs: dict[str, str], follow: Follow) -> None:
        """Run a query in a mode of low latency, which begins where the first batch has ended."""

        def has_begun() -> bool:
            return follow.ended.is_set() or self._tail().latest_commit is not None

        if not has_begun():
            self._execute(spark, confs, {}, trigger=Follow().trigger, enough=has_begun)
        if follow.ended.is_set():
            return
        built = self._build(spark, confs, {}, stops_at_removed=False)

        def has_to_stop() -> bool:
            self._direct.record_now_and_then()
            return follow.ended.is_set()

        with modes.own_confs(spark), modes.refusals(follow.mode):
            writer = self._direct.writer(spark, follow.mode, built).trigger(**follow.trigger)
            started = self._start(writer, expected=None)
            self._wait(started, self._direct.take, self._direct.record, enough=has_to_stop)
        self._direct.finish()

    def _continue_watermark(
        self, spark: "SparkSession", confs: dict[str, str], *, waiting: Collection[str]
    ) -> None:
        """Move the watermark to where a query that never stopped would have it, and emit what that closes."""
        tail = self._tail()
        watermark_ms = watermark_to_continue(self.stream, self._recorder.generation, tail, waiting)
        if watermark_ms is not None:
            self.lease.check()
            self._snapshot.writer().raise_watermark(tail, watermark_ms)
            self._repair(spark, confs)

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

    def _fire_timers(self, spark: "SparkSession", confs: dict[str, str]) -> None:
        """Run one more batch where timers may be due: Spark itself would run empty ones until the query is stopped."""
        if not self._has_timers():
            return
        self._repair(spark, confs)  # a no-data batch fires them as well
        tail = self._tail()
        if tail.next_start.kind == "continue" and tail.latest_commit is not None:
            self.lease.check()
            self._snapshot.writer().schedule_batch(tail)
            self._repair(spark, confs)

    def _pass_restores(self, spark: "SparkSession", confs: dict[str, str]) -> None:
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
                self._repair(spark, confs)
            else:
                self._snapshot.writer("restore").change_offsets(detour.passed)

    def _next_batch(self) -> int:
        offset = self._tail().latest_offset
        return 0 if offset is None else offset.batch_id + 1

    def _repair(self, spark: "SparkSession", confs: dict[str, str]) -> None:
        """Repair what a killed run left half done, until nothing is.

        Two states need it (measured on Spark 4.2 and Delta 4.4). A batch that the sink has and the checkpoint has not:
        Spark would repeat it, Delta would skip it without executing the plan, and the watermark that it computed would
        be lost. And a no-data batch that a kill prevented: Spark never runs it later, so windows that the watermark
        has closed would stay in state until new data arrives.
        """
        while True:
            tail = self._tail()
            start = tail.next_start
            if start.kind == "no_data_batch":
                self.lease.check()
                self._snapshot.writer().schedule_batch(tail)
            elif start.kind == "repeat_batch" and (validation := self._validation_rules(spark, tail)):
                self._finish(spark, confs, validation)
            elif start.kind == "repeat_batch":
                pins = current_versions(self.stream, self.target.lake)
                before = self._snapshot.records.pins()
                if before is not None and before.first_batch <= start.batch_id:
                    pins |= before.versions
                self._execute(spark, confs, pins, trigger=_REPEAT)
            else:
                return

    def _validation_rules(self, spark: "SparkSession", tail: Tail) -> ValidationRules | None:
        return pending_validation(self.stream, self._snapshot.records, tail, spark)

    def _finish(self, spark: "SparkSession", confs: dict[str, str], validation: ValidationRules) -> None:
        """Write the refused records of a batch that the main table has, and commit the batch."""
        stream = validating_as(self.stream, validation)
        relocation.follow(self._snapshot, self._sources)
        self._recorder.update(sources=self._sources)
        self._set_partitions(spark, confs)
        writer = RefusedWriter(
            records=self._snapshot.records,
            generation=self._recorder.generation.number,
            epoch=self.lease.epoch,
            query_id=self._tail().query_id or "",
        )
        with validation_confs(spark, validation):
            context = SourceContext(spark, self.target)
            (rows,) = (
                connector_of(source).open(source, context, name) for name, source in stream.sources.items()
            )
            self._await(self._writer(rows).foreachBatch(writer).trigger(once=True), expected=1)

    def _build(
        self, spark: "SparkSession", confs: dict[str, str], pins: dict[str, int], *, stops_at_removed: bool
    ) -> query.Query:
        """Return the query, with its tables ready; a refusal leaves everything as it was."""
        generation = self._recorder.generation
        starts = new_readers.starting_points(self.stream, self.target.lake, self._tail(), self._sources)
        context = SourceContext(
            spark, self.target, pins, starts, schemas_of(self._sources), stops_at_removed=stops_at_removed
        )
        built = query.build(self.stream, context, generation.number)
        mode = self.stream.query.output_mode
        # On Spark Connect the check takes a tenth of a second, and Spark has started what ran before.
        if (built.fingerprint, mode) != (generation.fingerprint, generation.output_mode):
            classic.check_supported(built.rows, mode)
        result = code_change.verdict(generation, self._tail(), built.operators, built.fingerprint)
        code_change.check(self.stream.name, result)
        records = self._snapshot.records
        for sink in self.stream.sinks:
            sink.check(records.sink_context(sink.name, sink.connection(self.target)), built.output)
        relocation.follow(self._snapshot, self._sources)
        # A table without a manifest is refused, so the manifest comes first.
        self._recorder.update(sources=self._sources)
        if self._tail().latest_commit is None:
            self._recorder.update(table_id=None)  # a table that was never written may be recreated
        for sink in self.stream.sinks:
            self.lease.check()
            sink.prepare(spark, records.sink_context(sink.name, sink.connection(self.target)), built.output)
        table = records.sink_table(None)
        self._recorder.update(
            table_id=None if table is None else table.table_id,
            sinks={
                **self._recorder.generation.sinks,
                **{sink.name: sink.identity for sink in self.stream.tables},
            },
            external_sinks={
                **(self._recorder.generation.external_sinks or {}),
                **{sink.name: sink.identity for sink in self.stream.external_sinks},
            },
            fingerprint=built.fingerprint,
            operators=built.operators,
            output_mode=self.stream.query.output_mode,
            warnings=built.warnings,
            watermarks=built.watermarks,
            spark_version=spark.version,
            confs=self._recorder.generation.confs or query.pinned_confs(confs),
        )
        self._lineage, self._observations = built.lineage, built.observations
        return built

    def _set_partitions(self, spark: "SparkSession", confs: dict[str, str]) -> None:
        # Spark 4.2 leaves the shuffle partitions out of a query's first offsets, and fails with None.get when it
        # compares them with those of a batch to repeat, to detect an unfinished offline repartition of the state.
        # The checkpoint as it is at this start decides: a repair before it may have changed it.
        committed = self._tail().committed_offsets
        unpinned = committed is not None and _PARTITIONS not in committed.conf
        spark.conf.set(_CHECK_REPARTITION, "false" if unpinned else "true")
        if unpinned:  # this start pins them, and the state has those of the first start
            first = self._recorder.generation.confs or confs
            spark.conf.set(_PARTITIONS, first.get(_PARTITIONS, confs[_PARTITIONS]))

    def _plan_snapshots(self, spark: "SparkSession") -> None:
        """Let this run write a snapshot of the state where the next start would apply many changes again.

        Spark writes one after ten batches. Until then each start repeats the changes of a large batch, such as the
        first one, which takes longer than a small increment. A snapshot after each batch would cost space and time.
        """
        if _CHANGES_PER_SNAPSHOT in self.stream.query.options:
            return
        with suppress(CheckpointFormatError):  # Spark reports a state that cannot be read
            if changes_to_apply(self._checkpoint) > _MANY_CHANGES:
                spark.conf.set(_CHANGES_PER_SNAPSHOT, "1")

    def _execute(
        self,
        spark: "SparkSession",
        confs: dict[str, str],
        pins: dict[str, int],
        *,
        trigger: Mapping[str, Any],
        enough: Callable[[], bool] | None = None,
        stops_at_removed: bool = False,
    ) -> None:
        """Start the query and wait until it ends.

        Args:
            confs: The session's confs.
            pins: The static versions to build it with.
            trigger: When it starts batches; `_REPEAT` repeats the one that was planned and not committed.
            enough: Asked whether it has to stop after the batch in progress; by default it has not.
            stops_at_removed: Whether it fails at a commit that removed rows of another stream's table.
        """
        stream, repeat = self.stream, trigger is _REPEAT
        self._set_partitions(spark, confs)
        self._plan_snapshots(spark)
        built = self._build(spark, confs, pins, stops_at_removed=stops_at_removed)
        if have_timers(built.operators):  # with them, each batch asks for another one
            spark.conf.set(_NO_DATA_BATCHES, "false")
        if not repeat:
            self._snapshot.records.write_pins(Pins(self._next_batch(), pins))
        writer = self._writer(built.rows)
        # A repeat always goes through foreachBatch: a batch that the table has is executed and not written.
        is_plain = feed_of(stream) is None and not stream.quarantines_rows
        native = is_plain and not repeat and len(stream.sinks) == 1 and stream.main.native
        if native:
            metadata = CommitMetadata(batch_id=None, fingerprint=built.fingerprint, static_versions=pins)
            path = str(self._snapshot.records.table())
            writer = writer.format("delta").option("userMetadata", metadata.to_json()).option("path", path)
        else:
            writer = writer.foreachBatch(
                BatchWriter(
                    records=self._snapshot.records,
                    generation=self._recorder.generation.number,
                    epoch=self.lease.epoch,
                    sinks=stream.sinks,
                    connections={sink.name: sink.connection(self.target) for sink in stream.sinks},
                    fingerprint=built.fingerprint,
                    static_versions=pins,
                    repeat=repeat,
                    quarantines_rows=stream.quarantines_rows,
                    ingest=self._ingest(spark, built),
                )
            )
        expected = None
        if "processingTime" not in trigger:
            expected = 1 if "once" in trigger else expected_batches(stream.sources, self.decision.backlog)
        self._await(writer.trigger(**trigger), expected=expected, enough=enough)

    def _ingest(self, spark: "SparkSession", built: query.Query) -> Ingest | None:
        """Return what the batches of a feed need; None where the stream reads none."""
        stream = self.stream
        if (feed := feed_of(stream)) is None:
            return None
        return Ingest(
            function=stream.function,
            validate=None if built.validates else feed.validated_lines,
            validation=rules_of(feed, spark),
            repeatable=built.repeatable,
            reads_all=built.reads_all,
            observations=tuple(built.observations),
            expect=stream.expect,
        )

    def _writer(self, rows: "DataFrame") -> "DataStreamWriter":
        return (
            rows.writeStream.queryName(str(self.stream.name))
            .outputMode(self.stream.query.output_mode)
            .option("checkpointLocation", self._checkpoint.uri())
        )

    def _await(
        self, writer: "DataStreamWriter", *, expected: int | None, enough: Callable[[], bool] | None = None
    ) -> None:
        """Start a query and wait until it ends.

        Args:
            writer: The query.
            expected: About how many batches there will be; None where nobody knows.
            enough: Asked whether it has to stop after the batch in progress.
        """
        started = self._start(writer, expected=expected)
        self._recorder.update(query_id=str(started.id))
        take = partial(_take, self._recorder, self.live, self.stream.name)
        self._wait(started, take, self._recorder.complete, enough=enough or (lambda: False))

    def _start(self, writer: "DataStreamWriter", *, expected: int | None) -> "StreamingQuery":
        self.lease.check()
        if self.canceled.is_set():  # starting and stopping a query takes longer than a canceled run has
            raise CanceledError
        started = writer.start()
        self.live.enter(self.stream.name, "running", expected_batches=expected)
        return started

    def _wait(
        self,
        started: "StreamingQuery",
        take: Callable[[list[Progress]], None],
        complete: Callable[[], object],
        *,
        enough: Callable[[], bool],
    ) -> None:
        """Wait until a query ends.

        Args:
            started: The query.
            take: Takes the progress of batches that have ended.
            complete: Records what is not recorded yet, however the query has ended.
            enough: Asked whether it has to stop after the batch in progress.
        """
        self._running = RunningQuery(started, take)
        try:
            self._running.wait(self.canceled, enough=enough)
        except BaseException:
            if self._running.done.is_set():
                with suppress(TidemillError, OSError):  # the failure of the query is the one to report
                    complete()
            raise
        complete()

    def _warnings(self, batches: tuple[BatchRecord, ...]) -> tuple[str, ...]:
        """Return what the stream's author may not expect, one sentence each."""
        decision = replace(self.decision, manifest=self._recorder.manifest)
        ignored = sum(batch.rows_ignored or 0 for batch in batches)
        if not ignored or self.stream.query.output_mode != "update":
            return decision.warnings
        return (
            *decision.warnings,
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
            lineage=self._lineage,
            observations=self._observations,
        )


def _take(recorder: Recorder, live: Live, stream: "StreamName", progress: list[Progress]) -> None:
    """Record batches that have ended, and show them.

    This is no method: a query that refers to its run would keep the run's session in a cycle until the interpreter
    ends, and then closing the session of Spark Connect waits forever for a thread that has ended.
    """
    _show(live, stream, recorder.take(progress))


def _show(live: Live, stream: "StreamName", lines: Sequence[BatchRecord]) -> None:
    live.add(stream, batches=len(lines), rows_read=sum(line.rows_read or 0 for line in lines))

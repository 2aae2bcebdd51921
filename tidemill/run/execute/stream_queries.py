"""The queries of one run of one stream, on a session of its own: built, started, and waited for.

A run has more than one where a killed run is repaired first, where it follows its sources, and where something is to be
emitted after the last row (stream_run.py).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

from tidemill.catalog.registrar import Registrar
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
from tidemill.run.decide.decision import RunDecision
from tidemill.run.execute import query, relocation
from tidemill.run.execute.progress import Live, expected_batches
from tidemill.run.execute.recorder import Recorder
from tidemill.run.execute.running_query import Progress, RunningQuery
from tidemill.run.spark import classic
from tidemill.run.tables import new_readers
from tidemill.run.tables.schemas import schemas_of
from tidemill.run.tables.versions import current_versions
from tidemill.target.target import Target

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
class StreamQueries:
    """The queries of one run of one stream.

    Attributes:
        decision: What the run does to the stream.
        lease: The held lease.
        canceled: Set when the run is asked to stop.
        live: Where the run shows how far it is.
        recorder: Records what the queries do.
        spark: Their session.
        confs: The confs of the stream, which the session has.
        sources: The records of the stream's sources.
        registrar: Registers the tables of the stream in a catalog; None where there is none.
        running: The last query that was started; None before the first.
        lineage: Of each column of the last query that was built.
        observations: What the function of that query observes.
    """

    decision: RunDecision
    target: Target
    lease: Lease
    canceled: Event
    live: Live
    recorder: Recorder
    spark: "SparkSession"
    confs: dict[str, str]
    sources: Mapping[str, SourceRecord]
    registrar: Registrar | None = None
    running: RunningQuery | None = field(init=False, default=None)
    lineage: Lineage = field(init=False, default_factory=dict)
    observations: Observations = field(init=False, default_factory=dict)
    _last: tuple[dict[str, int], query.Query] | None = field(init=False, default=None)

    @property
    def stream(self) -> "Stream":
        """The stream that runs."""
        return self.decision.stream

    def tail(self) -> Tail:
        """Return the end of the checkpoint as it is now."""
        return read_tail_or_empty(self._checkpoint)

    @property
    def _snapshot(self) -> Snapshot:
        return self.decision.snapshot

    @property
    def _checkpoint(self) -> "Store":
        return self._snapshot.checkpoint

    def build(self, pins: dict[str, int], *, stops_at_removed: bool) -> query.Query:
        """Return the query, with its tables ready; a refusal leaves everything as it was."""
        generation = self.recorder.generation
        starts = new_readers.starting_points(self.stream, self.target.lake, self.tail(), self.sources)
        context = SourceContext(
            self.spark, self.target, pins, starts, schemas_of(self.sources), stops_at_removed=stops_at_removed
        )
        built = query.build(self.stream, context, generation.number)
        mode = self.stream.query.output_mode
        # On Spark Connect the check takes a tenth of a second, and Spark has started what ran before.
        if (built.fingerprint, mode) != (generation.fingerprint, generation.output_mode):
            classic.check_supported(built.rows, mode)
        result = code_change.verdict(generation, self.tail(), built.operators, built.fingerprint)
        code_change.check(self.stream.name, result)
        records = self._snapshot.records
        for sink in self.stream.sinks:
            sink.check(records.sink_context(sink.name, sink.connection(self.target)), built.output)
        relocation.follow(self._snapshot, self.sources)
        # A table without a manifest is refused, so the manifest comes first.
        self.recorder.update(sources=self.sources)
        if self.tail().latest_commit is None:
            self.recorder.update(table_id=None)  # a table that was never written may be recreated
        for sink in self.stream.sinks:
            self.lease.check()
            sink.prepare(
                self.spark, records.sink_context(sink.name, sink.connection(self.target)), built.output
            )
        table = records.sink_table(None)
        self.recorder.update(
            table_id=None if table is None else table.table_id,
            sinks={
                **self.recorder.generation.sinks,
                **{sink.name: sink.identity for sink in self.stream.tables},
            },
            external_sinks={
                **(self.recorder.generation.external_sinks or {}),
                **{sink.name: sink.identity for sink in self.stream.external_sinks},
            },
            fingerprint=built.fingerprint,
            operators=built.operators,
            output_mode=self.stream.query.output_mode,
            warnings=built.warnings,
            watermarks=built.watermarks,
            spark_version=self.spark.version,
            confs=self.recorder.generation.confs or query.pinned_confs(self.confs),
        )
        if self.registrar is not None:
            self.registrar.comment(built.output)
        self.lineage, self.observations = built.lineage, built.observations
        self._last = pins, built
        return built

    def register(self) -> None:
        """Register the tables that are not registered, where a catalog has them; no query may run."""
        if self.registrar is not None:
            self.registrar.comment()  # a quarantine exists from its first record on
            self.registrar.register()

    def repair(self) -> None:
        """Repair what a killed run left half done, until nothing is.

        Two states need it (measured on Spark 4.2 and Delta 4.4). A batch that the sink has and the checkpoint has not:
        Spark would repeat it, Delta would skip it without executing the plan, and the watermark that it computed would
        be lost. And a no-data batch that a kill prevented: Spark never runs it later, so windows that the watermark
        has closed would stay in state until new data arrives.
        """
        while True:
            tail = self.tail()
            start = tail.next_start
            if start.kind == "no_data_batch":
                self.lease.check()
                self._snapshot.writer().schedule_batch(tail)
            elif start.kind == "repeat_batch" and (validation := self._validation_rules(tail)):
                self._finish(validation)
            elif start.kind == "repeat_batch":
                pins = current_versions(self.stream, self.target.lake)
                before = self._snapshot.records.pins()
                if before is not None and before.first_batch <= start.batch_id:
                    pins |= before.versions
                self.execute(pins, trigger=_REPEAT)
            else:
                return

    def _validation_rules(self, tail: Tail) -> ValidationRules | None:
        return pending_validation(self.stream, self._snapshot.records, tail, self.spark)

    def _finish(self, validation: ValidationRules) -> None:
        """Write the refused records of a batch that the main table has, and commit the batch."""
        stream = validating_as(self.stream, validation)
        relocation.follow(self._snapshot, self.sources)
        self.recorder.update(sources=self.sources)
        self._set_partitions()
        writer = RefusedWriter(
            records=self._snapshot.records,
            generation=self.recorder.generation.number,
            epoch=self.lease.epoch,
            query_id=self.tail().query_id or "",
        )
        with validation_confs(self.spark, validation):
            context = SourceContext(self.spark, self.target)
            (rows,) = (
                connector_of(source).open(source, context, name) for name, source in stream.sources.items()
            )
            self._await(self._writer(rows).foreachBatch(writer).trigger(once=True), expected=1)

    def _next_batch(self) -> int:
        offset = self.tail().latest_offset
        return 0 if offset is None else offset.batch_id + 1

    def _set_partitions(self) -> None:
        # Spark 4.2 leaves the shuffle partitions out of a query's first offsets, and fails with None.get when it
        # compares them with those of a batch to repeat, to detect an unfinished offline repartition of the state.
        # The checkpoint as it is at this start decides: a repair before it may have changed it.
        committed = self.tail().committed_offsets
        unpinned = committed is not None and _PARTITIONS not in committed.conf
        self.spark.conf.set(_CHECK_REPARTITION, "false" if unpinned else "true")
        if unpinned:  # this start pins them, and the state has those of the first start
            first = self.recorder.generation.confs or self.confs
            self.spark.conf.set(_PARTITIONS, first.get(_PARTITIONS, self.confs[_PARTITIONS]))

    def _plan_snapshots(self) -> None:
        """Let this run write a snapshot of the state where the next start would apply many changes again.

        Spark writes one after ten batches. Until then each start repeats the changes of a large batch, such as the
        first one, which takes longer than a small increment. A snapshot after each batch would cost space and time.
        """
        if _CHANGES_PER_SNAPSHOT in self.stream.query.options:
            return
        with suppress(CheckpointFormatError):  # Spark reports a state that cannot be read
            if changes_to_apply(self._checkpoint) > _MANY_CHANGES:
                self.spark.conf.set(_CHANGES_PER_SNAPSHOT, "1")

    def execute(
        self,
        pins: dict[str, int],
        *,
        trigger: Mapping[str, Any],
        enough: Callable[[], bool] | None = None,
        stops_at_removed: bool = False,
    ) -> None:
        """Start the query and wait until it ends.

        Args:
            pins: The static versions to build it with.
            trigger: When it starts batches; `_REPEAT` repeats the one that was planned and not committed.
            enough: Asked whether it has to stop after the batch in progress; by default it has not.
            stops_at_removed: Whether it fails at a commit that removed rows of another stream's table.
        """
        stream, repeat = self.stream, trigger is _REPEAT
        self._set_partitions()
        self._plan_snapshots()
        without_rows = repeat and self.tail().plans_no_rows
        if without_rows and self._last is not None and self._last[0] == pins:
            # It ran a moment ago, and has nothing to read: neither its sources nor its tables need another look.
            _, built = self._last
        else:
            built = self.build(pins, stops_at_removed=stops_at_removed)
        if have_timers(built.operators):  # with them, each batch asks for another one
            self.spark.conf.set(_NO_DATA_BATCHES, "false")
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
                    generation=self.recorder.generation.number,
                    epoch=self.lease.epoch,
                    sinks=stream.sinks,
                    connections={sink.name: sink.connection(self.target) for sink in stream.sinks},
                    fingerprint=built.fingerprint,
                    static_versions=pins,
                    repeat=repeat,
                    quarantines_rows=stream.quarantines_rows,
                    fires_timers=without_rows and have_timers(built.operators),
                    ingest=self._ingest(built),
                )
            )
        expected = None
        if "processingTime" not in trigger:
            expected = 1 if "once" in trigger else expected_batches(stream.sources, self.decision.backlog)
        self._await(writer.trigger(**trigger), expected=expected, enough=enough)

    def _ingest(self, built: query.Query) -> Ingest | None:
        """Return what the batches of a feed need; None where the stream reads none."""
        stream = self.stream
        if (feed := feed_of(stream)) is None:
            return None
        return Ingest(
            function=stream.function,
            validate=None if built.validates else feed.validated_lines,
            validation=rules_of(feed, self.spark),
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
        started = self.start(writer, expected=expected)
        self.recorder.update(query_id=str(started.id))
        take = partial(_take, self.recorder, self.live, self.stream.name, self.registrar)
        self.wait(started, take, self.recorder.complete, enough=enough or (lambda: False))

    def start(self, writer: "DataStreamWriter", *, expected: int | None) -> "StreamingQuery":
        """Start a query.

        Args:
            writer: The query.
            expected: About how many batches there will be; None where nobody knows.

        Raises:
            CanceledError: The run was asked to stop.
            LeaseLostError: Another run has the stream.
        """
        self.lease.check()
        if self.canceled.is_set():  # starting and stopping a query takes longer than a canceled run has
            raise CanceledError
        started = writer.start()
        self.live.enter(self.stream.name, "running", expected_batches=expected)
        return started

    def wait(
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
        self.running = RunningQuery(started, take)
        try:
            self.running.wait(self.canceled, enough=enough)
        except BaseException:
            if self.running.done.is_set():
                with suppress(TidemillError, OSError):  # the failure of the query is the one to report
                    complete()
            raise
        complete()


def _take(
    recorder: Recorder,
    live: Live,
    stream: "StreamName",
    registrar: Registrar | None,
    progress: list[Progress],
) -> None:
    """Record batches that have ended, show them, and register the tables that they were written to.

    This is no method: a query that refers to its run would keep the run's session in a cycle until the interpreter
    ends, and then closing the session of Spark Connect waits forever for a thread that has ended.
    """
    lines = recorder.take(progress)
    show_batches(live, stream, lines)
    if registrar is not None:
        registrar.take(lines)


def show_batches(live: Live, stream: "StreamName", lines: Sequence[BatchRecord]) -> None:
    """Show batches that have ended."""
    live.add(stream, batches=len(lines), rows_read=sum(line.rows_read or 0 for line in lines))

"""One run of one stream, step by step.

1. Lines that a killed run left out of the ledger are written.
2. A session of the stream's own, the tables it needs, the query.
3. Repair: a batch that was started and not committed is repeated alone, with the static versions of its
   first attempt; a no-data batch that a kill prevented is run.
4. The available-now query.
5. The ledger's lines as batches end, and the manifest at the end.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

from pipelines.streaming import delta_log
from pipelines.streaming.checkpoint import CheckpointFormatError, FileAbsentError, Tail, read_offset
from pipelines.streaming.errors import CanceledError, TerminalError
from pipelines.streaming.records import ledger
from pipelines.streaming.records.lease import Lease
from pipelines.streaming.records.manifest import Manifest, read_manifest, write_manifest
from pipelines.streaming.run import classic, query, repair, tables
from pipelines.streaming.run.faults import pause_point
from pipelines.streaming.run.guard import check_edges
from pipelines.streaming.run.plan import Plan
from pipelines.streaming.run.progress import record, wait
from pipelines.streaming.run.results import BatchRecord, Outcome, StreamResult
from pipelines.streaming.run.tail import tail_of
from pipelines.streaming.run.writer import BatchWriter
from pipelines.streaming.sinks.sink import CommitMetadata
from pipelines.streaming.sources import DeltaSource, StreamReading
from pipelines.streaming.sources.source import SourceContext
from pipelines.streaming.target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.streaming.stream import Stream


class Engine(Protocol):
    """Where sessions come from; the first one may start a JVM."""

    def new(self) -> "SparkSession":
        """A session with confs and temporary views of its own."""

    def default_partitions(self) -> int:
        """Shuffle partitions of a query that does not say."""

    def abort_start(self) -> None:
        """Keeps Spark from starting, now and later; once it is there this does nothing."""


@dataclass(slots=True)
class StreamRun:
    """One run of one stream whose lease is held.

    Attributes:
        plan: What is to be done.
        target: The target.
        engine: Where the session comes from.
        run_id: The run.
        lease: The held lease.
        canceled: Set when the run is asked to stop.
    """

    plan: Plan
    target: Target
    engine: Engine
    run_id: str
    lease: Lease
    canceled: Event
    _manifest: Manifest = field(init=False)
    _records: dict[int, BatchRecord] = field(init=False, default_factory=dict)
    _log_version: int = field(init=False, default=0)

    @property
    def stream(self) -> "Stream":
        """The stream that runs."""
        return self.plan.stream

    @property
    def _table(self) -> "Path":
        return self.target.lake.table(self.stream.name)

    @property
    def _generation(self) -> int:
        return self._manifest.active.number

    def run(self) -> StreamResult:
        """Runs the stream.

        Raises:
            TidemillError: what went wrong, if it is one of ours.
            Exception: what Spark says.
        """
        started = time.monotonic()
        lake, name = self.target.lake, self.stream.name
        self._manifest = read_manifest(lake, name) or self.plan.manifest
        write_manifest(lake, name, self._manifest)
        self._complete_ledger()
        if self.plan.reasons != ("the ledger lacks lines",):
            self._query()
        return self._result(time.monotonic() - started)

    def _query(self) -> None:
        spark = self.engine.new()
        confs = self.stream.query.confs(self.engine.default_partitions())
        committed = self.plan.tail.committed_offsets
        if committed is not None and "spark.sql.shuffle.partitions" not in committed.conf:
            # Spark 4.2 leaves the shuffle partitions out of a query's first offsets, and fails with None.get when
            # it compares them with those of a batch to be repeated, to see an offline repartition of the state
            # that was broken off. That batch has them in any case, so there was none here.
            confs["spark.sql.streaming.checkUnfinishedRepartitionOnRestart"] = "false"
        for key, value in confs.items():
            spark.conf.set(key, value)
        self.lease.record_jvm(classic.jvm_pid(spark))
        classic.use_scheduler_pool(spark, str(self.stream.name))
        check_edges(self.stream, self.target.lake, self.plan.tail)
        version = delta_log.latest_version(self._table)
        self._log_version = 0 if version is None else version + 1
        self._repair(spark)
        pins = self._current_versions()
        tail = tail_of(self.plan.checkpoint)
        first = 0 if tail.latest_offset is None else tail.latest_offset.batch_id + 1
        repair.write_pins(self.target.lake.control(self.stream.name), repair.Pins(first, pins))
        built = self._build(spark, pins)
        self._manifest = self._manifest.with_active(
            fingerprint=built.fingerprint,
            spark_version=spark.version,
            confs=self._manifest.active.confs or query.pinned_confs(confs),
        )
        self._execute(built, pins, once=False)
        check_edges(self.stream, self.target.lake, self.plan.tail)

    def _repair(self, spark: "SparkSession") -> None:
        """Until nothing is left half done: see run/repair.py."""
        control = self.target.lake.control(self.stream.name)
        while True:
            tail = tail_of(self.plan.checkpoint)
            if tail.next_start.kind == "no_data_batch":
                self.lease.check()
                repair.schedule_no_data_batch(self.plan.checkpoint, tail, control)
            elif tail.next_start.kind == "repeat_batch":
                pins = self._current_versions()
                before = repair.read_pins(control)
                if before is not None and before.first_batch <= (tail.next_start.batch_id or 0):
                    pins |= before.versions
                self._execute(self._build(spark, pins), pins, once=True)
            else:
                return

    def _build(self, spark: "SparkSession", pins: Mapping[str, int]) -> query.Query:
        """The query, and its tables made ready."""
        built = query.build(self.stream, SourceContext(spark, self.target, pins), self._generation)
        for sink in self.stream.sinks:
            self.lease.check()
            tables.prepare(spark, sink, self.target.lake.table(self.stream.name, sink.name), built.output)
        table = delta_log.open_table(self._table)
        self._manifest = self._manifest.with_active(
            table_id=None if table is None else str(table.metadata().id)
        )
        write_manifest(self.target.lake, self.stream.name, self._manifest)
        return built

    def _current_versions(self) -> dict[str, int]:
        """The newest Delta version of each static reading.

        Raises:
            TerminalError: a table that is read does not exist yet.
        """
        pins = {}
        for name, source in self.stream.sources.items():
            if isinstance(source, StreamReading):
                version = delta_log.latest_version(self.target.lake.table(source.stream))
                fix = f"Run it first: tidemill run +{self.stream.name}"
            elif isinstance(source, DeltaSource):
                version = delta_log.latest_version(Path(source.path))
                fix = "Correct the path, or make the table."
            else:
                continue
            if version is None:
                raise TerminalError(
                    f"{source.describe()} has no table yet.", stream=self.stream.name, fix=fix
                )
            if not source.streaming:
                pins[name] = version
        return pins

    def _execute(self, built: query.Query, pins: dict[str, int], *, once: bool) -> None:
        """Starts the query and waits for its end.

        Args:
            built: The query.
            pins: The static versions it was built with.
            once: Only repeat the batch that was started and not committed.
        """
        stream = self.stream
        writer = (
            built.rows.writeStream.queryName(str(stream.name))
            .outputMode(stream.query.output_mode)
            .option("checkpointLocation", str(self.plan.checkpoint))
        )
        # A repeat goes through foreachBatch in any case: what the table has is executed and not written.
        native = built.ingest is None and not once and len(stream.sinks) == 1 and stream.main.native
        if native:
            note = CommitMetadata(batch_id=None, fingerprint=built.fingerprint, static_versions=pins)
            writer = (
                writer.format("delta").option("userMetadata", note.text()).option("path", str(self._table))
            )
        else:
            writer = writer.foreachBatch(
                BatchWriter(
                    stream=stream.name,
                    lake=self.target.lake,
                    generation=self._generation,
                    epoch=self.lease.epoch,
                    sinks=stream.sinks,
                    fingerprint=built.fingerprint,
                    static_versions=pins,
                    repeat=once,
                    ingest=built.ingest,
                    expect=stream.expect if built.ingest is not None else (),
                )
            )
        trigger = {"once": True} if once else {"availableNow": True}
        self.lease.check()
        if self.canceled.is_set():  # to start a query and to stop it takes longer than a canceled run has
            raise CanceledError
        running = writer.trigger(**trigger).start()
        limit = stream.query.max_run
        seconds = limit.total_seconds() if isinstance(limit, timedelta) and not once else None
        try:
            wait(running, self.canceled, lambda batches: self._note(batches, pins), seconds=seconds)
        finally:
            self._keep_query_id()
        self._flush()

    def _keep_query_id(self) -> None:
        with suppress(CheckpointFormatError, OSError):
            query_id = tail_of(self.plan.checkpoint).query_id
            self._manifest = self._manifest.with_active(query_id=query_id)
            write_manifest(self.target.lake, self.stream.name, self._manifest)

    def _note(self, batches: list[dict[str, Any]], pins: Mapping[str, int]) -> None:
        """Takes the progress of the query; an entry without `addBatch` is of a batch that never ran."""
        known = len(self._records)
        for progress in batches:
            if progress["batchId"] in self._records or "addBatch" not in progress.get("durationMs", {}):
                continue
            self._records[progress["batchId"]] = record(
                progress,
                run_id=self.run_id,
                generation=self._generation,
                query_id=progress["id"],
                pins=pins,
            )
        if len(self._records) > known:
            pause_point("before-ledger", self.stream.name)
            self._flush()

    def _flush(self) -> None:
        """Writes the lines of batches that are committed and have none yet."""
        self.lease.check()
        tail = tail_of(self.plan.checkpoint)
        last = -1 if tail.latest_commit is None else tail.latest_commit.batch_id
        done = self._manifest.active.ledger_batch
        fresh = sorted(batch for batch in self._records if done < batch <= last)
        if fresh and tail.query_id:
            found = ledger.commits_by_batch(self._table, tail.query_id, self._log_version)
            for batch in fresh:
                self._records[batch] = self._completed(self._records[batch], found.get(batch))
            self._log_version = max((c.version + 1 for c in found.values()), default=self._log_version)
            ledger.append(self.target.lake, self.stream.name, [self._records[batch] for batch in fresh])
            self._manifest = self._manifest.with_active(ledger_batch=last, query_id=tail.query_id)
            write_manifest(self.target.lake, self.stream.name, self._manifest)

    def _completed(self, batch: BatchRecord, commit: delta_log.Commit | None) -> BatchRecord:
        """A record with what the offset log and the Delta log add to the progress."""
        note = ledger.commit_metadata(commit)
        end = read_offset(self.plan.checkpoint, batch.batch_id)
        start = {}
        with suppress(FileAbsentError):
            start = ledger.plain_offsets(read_offset(self.plan.checkpoint, batch.batch_id - 1))
        return replace(
            batch,
            rows_written=commit.rows_written if commit else None,
            delta_version=commit.version if commit else None,
            rows_quarantined=note.get("rows_quarantined"),
            rows_dropped=batch.rows_dropped if batch.rows_dropped is not None else note.get("rows_dropped"),
            violations=batch.violations or note.get("violations") or {},
            start_offsets=start,
            end_offsets=ledger.plain_offsets(end),
        )

    def _complete_ledger(self) -> None:
        """Writes the lines that a killed run left out."""
        tail = tail_of(self.plan.checkpoint)
        active = self._manifest.active
        if tail.latest_commit is None or tail.query_id is None:
            return
        last = tail.latest_commit.batch_id
        if last <= active.ledger_batch:
            return
        lacking = ledger.missing(self.target.lake, self.stream.name, active.number, last, active.ledger_batch)
        lines = ledger.reconstructed(
            self.plan.checkpoint,
            self._table,
            lacking,
            run_id=self.run_id,
            generation=active.number,
            query_id=tail.query_id,
        )
        ledger.append(self.target.lake, self.stream.name, lines)
        self._manifest = self._manifest.with_active(ledger_batch=last, query_id=tail.query_id)
        write_manifest(self.target.lake, self.stream.name, self._manifest)

    def _result(self, seconds: float) -> StreamResult:
        tail = tail_of(self.plan.checkpoint)
        batches = tuple(self._records[batch] for batch in sorted(self._records))
        outcome: Outcome = "updated" if batches else "idle"
        self._manifest = self._manifest.with_last_run(self.run_id, outcome, None)
        write_manifest(self.target.lake, self.stream.name, self._manifest)
        with_state = [batch for batch in batches if batch.state_rows is not None]
        return StreamResult(
            stream=self.stream.name,
            outcome=outcome,
            batches=batches,
            seconds=round(seconds, 3),
            watermark_ms=watermark_of(tail),
            table=str(self._table),
            table_version=delta_log.latest_version(self._table),
            generation=self._generation,
            state_rows=with_state[-1].state_rows if with_state else None,
            state_bytes=with_state[-1].state_bytes if with_state else None,
            reason=", ".join(self.plan.reasons),
        )


def watermark_of(tail: Tail) -> int | None:
    """The watermark that the next batch will have, milliseconds since the epoch; None without one."""
    if tail.latest_commit is None:
        return None
    return tail.latest_commit.next_watermark_ms or None

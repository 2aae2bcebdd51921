"""Backfill: a range of a stream's table is computed again beside the live stream, and replaced in one commit.

The stream runs in a staging folder, with a checkpoint of its own, over what the live stream has read and nothing
more: its first batch is planned with the offsets of the live checkpoint (`planned_batch.py`). A stateful stream then
emits what the watermark has closed, as every run does. Under the live stream's lease, what that stream has read in the
meantime is computed as well, and the result is published. The steps of the publication:
- `quarantine`: records that are refused now are added, and those that have a row now are removed.
- `tables`: the range of each table is replaced in one commit.
- `staging`: the staging folder is removed.
"""

import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pipelines.streaming import delta_log
from pipelines.streaming.columns import BATCH
from pipelines.streaming.errors import TerminalError
from pipelines.streaming.lifecycle.backfill_quarantine import sorted_quarantine
from pipelines.streaming.lifecycle.backfill_range import BackfillRange, backfill_range, whole_because
from pipelines.streaming.lifecycle.change import Change
from pipelines.streaming.lifecycle.planned_batch import plan_first_batch, plan_next_batch
from pipelines.streaming.lifecycle.source_history import missing_in_sources, removed_versions
from pipelines.streaming.lifecycle.staging import Staging, operation_metadata
from pipelines.streaming.lifecycle.steps import (
    Step,
    carry_out,
    leased,
    session,
    staging_records,
    unfinished,
)
from pipelines.streaming.plurals import counted
from pipelines.streaming.records import Snapshot, StreamRecords
from pipelines.streaming.records.manifest import Generation, Manifest, SourceRecord
from pipelines.streaming.records.operation import Operation, new_operation
from pipelines.streaming.run.live import Live
from pipelines.streaming.run.waiting import wait_until_free
from pipelines.streaming.run.writer import QUARANTINE, batch_column
from pipelines.streaming.sources import StreamReading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pipelines.streaming.checkpoint import OffsetEntry
    from pipelines.streaming.run.engine import Engine
    from pipelines.streaming.stream import Stream
    from pipelines.streaming.target import Target

KIND = "backfill"
COMPUTE = "compute"
STEPS = ("quarantine", "tables", "staging")
_LONGEST_RUN_SECONDS = 3600.0


def backfill(
    stream: "Stream",
    target: "Target",
    engine: "Engine",
    *,
    begin: str,
    end: str,
    allow_missing: bool = False,
    keep_staging: bool = False,
    readers: "Sequence[Stream]" = (),
    live: Live | None = None,
    dry_run: bool = False,
) -> Change:
    """Compute a range of a stream's table again, with the code as it is now, and replace it in one commit.

    Everything that the live stream has read is read again, so the range is computed from all rows that belong to
    it. The live stream may run meanwhile; for the publication its lease is held.

    Args:
        stream: The stream, which appends rows and declares `backfill_by`.
        target: The target.
        engine: Where Spark sessions come from; not asked for a plan.
        begin: The first value of the column that is replaced.
        end: The first value that is not.
        allow_missing: Whether to continue where the sources no longer have everything that the stream has read.
        keep_staging: Whether the computed tables are kept, in the staging folder.
        readers: The streams that may read its table, which the plan names.
        live: Where others see how far it is.
        dry_run: Whether the backfill is planned only.

    Raises:
        TerminalError: The range does not fit the table, the stream cannot be computed for a range, or its sources no
            longer have everything.
        LeaseHeldError: A run, or another process with the same operation, holds the stream.
    """
    records = StreamRecords(target.lake, stream.name)
    snapshot = records.snapshot()
    arguments = {"begin": begin, "end": end, "allow_missing": allow_missing, "keep_staging": keep_staging}
    operation = unfinished(records, KIND, arguments)
    if operation is None or (
        not operation.publishing and operation.decided["generation"] != snapshot.generation
    ):
        _check(stream, snapshot)
        span = backfill_range(stream, records.table(), begin, end)
        missing = _missing(stream, target, snapshot, span)
        if missing and not (allow_missing or dry_run):
            raise TerminalError(
                f"its sources no longer have everything that the range needs: {' '.join(missing)}",
                stream=stream.name,
                fix="choose a range that does not need it; or give --allow-missing, and the rows that came from it "
                "are missing.",
            )
        command = f"tidemill backfill {stream.name} --from {begin} --to {end}"
        command += " --allow-missing" * allow_missing + " --keep-staging" * keep_staging
        decided = {"generation": snapshot.generation, "query_id": str(uuid4()), "missing": list(missing)}
        decided |= {"column": span.column, "type": span.kind, "begin": span.begin, "end": span.end}
        operation = new_operation(KIND, arguments, command=command, decided=decided)
    result: dict[str, Any] = {}
    if not dry_run:
        result = _Backfilling(stream, target, engine, records, operation, live or Live()).run()
    return _change(stream, operation, readers, result)


def _check(stream: "Stream", snapshot: Snapshot) -> None:
    """Check that a range of the stream can be computed alone.

    Raises:
        TerminalError: It has never run, its rows change after they were written, or it reads changes.
    """
    again = f"compute it as a whole: tidemill rebuild {stream.name}"
    if snapshot.manifest is None or snapshot.tail.latest_offset is None:
        raise TerminalError(
            "it has read nothing so far, so there is nothing to compute again.",
            stream=stream.name,
            fix=f"tidemill run {stream.name}",
        )
    if (because := whole_because(stream)) is not None:
        raise TerminalError(f"{because}.", stream=stream.name, fix=again)
    known = {source.key for source in snapshot.tail.latest_offset.sources}
    declared = {name for name, source in stream.sources.items() if source.streaming}
    if known != declared:
        raise TerminalError(
            f"its checkpoint has the sources {', '.join(sorted(known))}, and its definition "
            f"{', '.join(sorted(declared))}.",
            stream=stream.name,
            fix=f"run the stream first (tidemill run {stream.name}); or {again}",
        )


def _missing(stream: "Stream", target: "Target", snapshot: Snapshot, span: BackfillRange) -> tuple[str, ...]:
    """Return what the sources no longer have; of a feed only what rows of the range came from."""
    missing = (*missing_in_sources(stream, target, snapshot), *removed_versions(stream, target, snapshot))
    if not missing or stream.feed is None:
        return missing
    table = delta_log.open_table(snapshot.records.table())
    if table is None:
        return missing
    from pipelines.streaming.lifecycle.lost_origins import lost_origins

    return lost_origins(stream, target, table, span)


def _change(
    stream: "Stream", operation: Operation, readers: "Sequence[Stream]", result: dict[str, Any]
) -> Change:
    decided = operation.decided
    span = BackfillRange(decided["column"], decided["type"], decided["begin"], decided["end"])
    effects = [
        (
            "What the stream has read is read again, into a staging table; then the rows with "
            f"{span} are replaced in one commit."
        ),
        *decided["missing"],
    ]
    effects += [
        f"{reader.name} reads new rows of the table: its next run refuses the commit. Backfill or rebuild it as well "
        "(--downstream), or keep what it has (tidemill accept)."
        for reader in readers
        if stream.name in reader.upstreams
    ]
    if operation.done or operation.publishing:
        effects.append(
            f"The operation began at {operation.began_at}; done: {', '.join(operation.done) or 'nothing'}."
        )
    outcome = ""
    if result:
        outcome = (
            f"The range had {counted(result['rows_before'], 'row')} and has {counted(result['rows_after'], 'row')}: "
            f"{result['rows_added']:,} added, {result['rows_removed']:,} removed (a changed row is both)."
        )
    return Change(
        stream=stream.name,
        what=f"The rows with {span} are computed again.",
        effects=tuple(effects),
        outcome=outcome,
    )


@dataclass(frozen=True, slots=True)
class _Backfilling:
    """A backfill that is carried out."""

    stream: "Stream"
    target: "Target"
    engine: "Engine"
    records: StreamRecords
    operation: Operation
    live: Live

    def run(self) -> dict[str, Any]:
        """Compute, then publish under the stream's lease; return the numbers of rows."""
        operation = self.operation
        if not operation.publishing and COMPUTE not in operation.done:
            self.records.write_operation(operation)
            self._prepare(self._committed())
            self._staging.run(planned_only=True)
            operation = operation.with_step(COMPUTE)
            self.records.write_operation(operation)
        wait_until_free(
            [self.stream], self.target.lake, seconds=_LONGEST_RUN_SECONDS, on_wait=lambda *_: None
        )
        with leased(self.records, operation.id, dry_run=False) as lease:
            if lease is None:
                return {}
            if not operation.publishing:
                self._catch_up()
                operation = replace(operation, result=self._compared() | self._code())
            carry_out(self.records, operation, replace(self, operation=operation).steps(), lease)
        return dict(operation.result)

    @property
    def _span(self) -> BackfillRange:
        decided = self.operation.decided
        return BackfillRange(decided["column"], decided["type"], decided["begin"], decided["end"])

    @property
    def _staged(self) -> StreamRecords:
        return staging_records(self.records, self.operation, own_checkpoint=True)

    @property
    def _staging(self) -> Staging:
        return Staging(
            stream=self.stream,
            target=self.target,
            engine=self.engine,
            records=self._staged,
            operation=self.operation,
            live=self.live,
        )

    def steps(self) -> tuple[Step, ...]:
        """Return the steps, in the order of `STEPS`."""
        runs = (self._sort_quarantine, self._replace_ranges, self._remove_staging)
        return tuple(map(Step, STEPS, runs))

    def _committed(self) -> "OffsetEntry":
        """Return the offsets up to which the live stream has published rows.

        Raises:
            TerminalError: A batch is half done.
        """
        tail = self.records.snapshot().tail
        if tail.committed_offsets is None or tail.next_start.kind in ("repeat_batch", "no_data_batch"):
            raise TerminalError(
                f"its batch {tail.next_start.batch_id} is not complete.",
                stream=self.stream.name,
                fix=f"run the stream first: tidemill run {self.stream.name}",
            )
        return tail.committed_offsets

    def _prepare(self, entry: "OffsetEntry") -> None:
        staged = self._staged
        number = self.operation.decided["generation"]
        if staged.manifest() is None:
            began = datetime.now(UTC).isoformat(timespec="seconds")
            live = self.records.manifest()
            recorded = {} if live is None else live.active.sources
            starts = {
                name: SourceRecord(
                    start="snapshot" if isinstance(source, StreamReading) else None,
                    accepted_versions=recorded.get(name, SourceRecord()).accepted_versions,
                )
                for name, source in self.stream.sources.items()
                if source.streaming
            }
            staged.control.mkdir(parents=True, exist_ok=True)
            generation = Generation(number=number, began_at=began, why=KIND, sources=starts)
            staged.write_manifest(Manifest(generations=(generation,)))
        query_id = self.operation.decided["query_id"]
        plan_first_batch(staged.checkpoint(number), self.records.checkpoint(number), entry, query_id)

    def _catch_up(self) -> None:
        """Compute what the live stream has read since, and what its watermark has closed."""
        snapshot, staged = self.records.snapshot(), self._staged.snapshot()
        entry = self._committed()
        if staged.tail.next_start.kind in ("continue", "no_data_batch"):
            plan_next_batch(self._staged, staged.tail, snapshot.checkpoint, entry)
        self._staging.run(planned_only=True)

    def _code(self) -> dict[str, str]:
        """Return the fingerprint of the code that computed the range."""
        staged = self._staged.manifest()
        return (
            {} if staged is None or staged.active.fingerprint is None else {"code": staged.active.fingerprint}
        )

    def _compared(self) -> dict[str, int]:
        """Return how the staged rows of the range differ from the live ones."""
        spark = session(self.engine)
        before, after = (
            self._live_rows(spark, self.stream.main.name),
            self._staged_rows(spark, self.stream.main.name),
        )
        before, after = before.where(self._span.condition).drop(BATCH), after.drop(BATCH)
        after = after.select(*before.columns) if set(before.columns) <= set(after.columns) else after
        same = set(before.columns) == set(after.columns)
        added = after.exceptAll(before).count() if same else after.count()
        rows_before, rows_after = before.count(), after.count()
        return {
            "rows_before": rows_before,
            "rows_after": rows_after,
            "rows_added": added,
            "rows_removed": rows_before - (rows_after - added),
        }

    def _live_rows(self, spark: "SparkSession", sink: str) -> "DataFrame":
        return spark.read.format("delta").load(str(self.records.table(sink)))

    def _staged_rows(self, spark: "SparkSession", sink: str) -> "DataFrame":
        """Return the staged rows of the range, as rows of the live stream's last batch."""
        rows = spark.read.format("delta").load(str(self._staged.table(sink))).where(self._span.condition)
        if BATCH not in rows.columns:
            return rows
        last = self.records.snapshot().last_commit
        return rows.withColumn(BATCH, batch_column(self.operation.decided["generation"], last))

    def _sort_quarantine(self) -> None:
        if self.stream.feed is None:
            return
        spark = session(self.engine)
        live, staged = (
            None
            if delta_log.open_table(records.table(QUARANTINE)) is None
            else spark.read.format("delta").load(str(records.table(QUARANTINE)))
            for records in (self.records, self._staged)
        )
        if staged is not None:
            last = self.records.snapshot().last_commit
            staged = staged.withColumn("batch_id", batch_column(0, last)["batch_id"])
        content = sorted_quarantine(self.stream, self._span, live, staged)
        if content is None:
            return
        writer = content.write.format("delta").mode("overwrite").options(**self._commit(QUARANTINE))
        if live is not None:
            writer = writer.option("replaceWhere", "true")
        writer.save(str(self.records.table(QUARANTINE)))

    def _replace_ranges(self) -> None:
        result = self.operation.result
        if len(self.stream.sinks) == 1 and not (result["rows_added"] or result["rows_removed"]):
            return  # a commit that changes nothing would stop every reader of the table
        spark = session(self.engine)
        condition = self._span.condition
        for sink in self.stream.sinks:
            rows = self._staged_rows(spark, sink.name)
            writer = rows.write.format("delta").mode("overwrite").options(**self._commit(sink.name))
            writer = writer.option("replaceWhere", condition).option("mergeSchema", "true")
            writer.option("partitionOverwriteMode", "static").save(str(self.records.table(sink.name)))

    def _commit(self, sink: str) -> dict[str, str]:
        return {
            "txnAppId": f"{self.operation.id}/{sink}",
            "txnVersion": "0",
            "userMetadata": operation_metadata(
                self.operation, begin=self.operation.arguments["begin"], end=self.operation.arguments["end"]
            ),
        }

    def _remove_staging(self) -> None:
        if not self.operation.arguments["keep_staging"]:
            shutil.rmtree(self._staged.lake.root, ignore_errors=True)

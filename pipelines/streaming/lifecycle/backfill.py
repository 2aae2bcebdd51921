"""Backfill: a range of a stream's table is computed again beside the live stream, and replaced in one commit.

The stream runs in a staging folder, with a checkpoint of its own, over what the live stream has read and nothing
more: its first batch is planned with the offsets of the live checkpoint (`planned_batch.py`). A stateful stream then
emits what the watermark has closed, as every run does. Under the live stream's lease, what that stream has read in the
meantime is computed as well, and the result is published. The steps of the publication:
- `quarantine`: records that are refused now are added, and those that have a row now are removed.
- `tables`: the range of each table is replaced in one commit.
- `staging`: the staging folder is removed.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pipelines.streaming import delta_log
from pipelines.streaming.code_version import code_version
from pipelines.streaming.durations import duration, written
from pipelines.streaming.errors import TerminalError
from pipelines.streaming.lifecycle.backfill_quarantine import divided, sorted_quarantine
from pipelines.streaming.lifecycle.backfill_range import BackfillRange, backfill_range, whole_because
from pipelines.streaming.lifecycle.change import Change
from pipelines.streaming.lifecycle.follow import past_accepted_commits
from pipelines.streaming.lifecycle.lookback import Lookback, lookback_of, parts_of
from pipelines.streaming.lifecycle.planned_batch import plan_first_batch, plan_flush, plan_next_batch
from pipelines.streaming.lifecycle.range_tables import RangeTables
from pipelines.streaming.lifecycle.source_history import missing_in_sources, removed_versions
from pipelines.streaming.lifecycle.staging import Staging
from pipelines.streaming.lifecycle.steps import (
    Step,
    carry_out,
    computed,
    leased_when_free,
    session,
    unfinished,
)
from pipelines.streaming.plurals import counted
from pipelines.streaming.records import Snapshot, StreamRecords
from pipelines.streaming.records.manifest import Generation, Manifest, SourceRecord
from pipelines.streaming.records.operation import Operation, new_operation
from pipelines.streaming.run.live import Live
from pipelines.streaming.run.writer import QUARANTINE, batch_column
from pipelines.streaming.sinks import DeltaMerge
from pipelines.streaming.sources import Source, StreamReading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from pipelines.streaming.checkpoint import OffsetEntry
    from pipelines.streaming.lifecycle.source_span import SourceSpan
    from pipelines.streaming.records.manifest import Start
    from pipelines.streaming.run.engine import Engine
    from pipelines.streaming.stream import Stream
    from pipelines.streaming.target import Target

KIND = "backfill"
STEPS = ("quarantine", "tables", "staging")


def backfill(
    stream: "Stream",
    target: "Target",
    engine: "Engine",
    *,
    begin: str,
    end: str,
    lookback: str | timedelta | None = None,
    allow_missing: bool = False,
    keep_staging: bool = False,
    readers: "Sequence[Stream]" = (),
    live: Live | None = None,
    dry_run: bool = False,
    publish: bool = True,
) -> Change:
    """Compute a range of a stream's table again, with the code as it is now, and replace it in one commit.

    Everything that the live stream has read is read again, so the range is computed from all rows that belong to
    it; with a lookback, only what is that close to the range by the times of the sources. The live stream may run
    meanwhile; for the publication its lease is held. In a merge table the keys that have a row in the range are
    computed again.

    Args:
        stream: The stream, which declares `backfill_by`.
        target: The target.
        engine: Where Spark sessions come from; not asked for a plan.
        begin: The first value of the column that is replaced.
        end: The first value that is not.
        lookback: How much of the sources is read before and after the range: `"2 days"`. The default is what the
            stream declares, or everything.
        allow_missing: Whether to continue where the sources no longer have everything that the stream has read.
        keep_staging: Whether the computed tables are kept, in the staging folder.
        readers: The streams that may read its table, which the plan names.
        live: Where others see how far it is.
        dry_run: Whether the backfill is planned only.
        publish: Whether the table changes; otherwise the range is computed and compared, and the same call with
            `publish` continues.

    Raises:
        SchemaChangeError: A column of the table is missing in the new rows, or has another type.
        TerminalError: The range does not fit the table, the stream cannot be computed for a range, or its sources no
            longer have everything.
        LeaseHeldError: A run, or another process with the same operation, holds the stream.
    """
    records = StreamRecords(target.lake, stream.name)
    snapshot = records.snapshot()
    arguments = {"begin": begin, "end": end, "allow_missing": allow_missing, "keep_staging": keep_staging}
    length = lookback_of(stream, lookback)
    arguments |= {} if length is None else {"lookback": written(length)}
    operation = unfinished(records, KIND, arguments)
    current: dict[str, Any] = {"generation": snapshot.generation, "code_version": code_version(stream)}
    if operation is not None and not operation.publishing and length is not None:
        reading = Lookback(stream, target, records, _span(operation), length)
        current["parts"] = parts_of(reading.spans(_read_up_to(stream, target, snapshot)))
    if operation is None or not (operation.publishing or current.items() <= operation.decided.items()):
        _check(stream, snapshot)
        span = backfill_range(stream, records.table(), begin, end)
        spans = Lookback(stream, target, records, span, length).checked(_read_up_to(stream, target, snapshot))
        missing = _missing(stream, target, snapshot, span, spans)
        if missing and not (allow_missing or dry_run):
            raise TerminalError(
                f"its sources no longer have everything that the range needs: {' '.join(missing)}",
                stream=stream.name,
                fix="choose a range that does not need it; or give --allow-missing, and the rows that came from it "
                "are missing.",
            )
        command = f"tidemill backfill {stream.name} --from {begin} --to {end}"
        command += "" if length is None else f" --lookback '{written(length)}'"
        command += " --allow-missing" * allow_missing + " --keep-staging" * keep_staging
        decided = current | {"query_id": str(uuid4()), "missing": list(missing)}
        decided |= {"column": span.column, "type": span.kind, "begin": span.begin, "end": span.end}
        decided |= {"reads": [one.reads for one in spans.values()], "parts": parts_of(spans)}
        operation = new_operation(KIND, arguments, command=command, decided=decided)
    if dry_run:
        return _change(stream, operation, readers)
    work = _Backfilling(
        stream=stream,
        target=target,
        engine=engine,
        records=records,
        operation=operation,
        live=live or Live(),
    )
    return _change(stream, work.complete(publish=publish), readers)


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


def _read_up_to(stream: "Stream", target: "Target", snapshot: Snapshot) -> "OffsetEntry | None":
    """Return the offsets up to which a stream has published rows; None before its first batch is complete."""
    committed = snapshot.tail.committed_offsets
    sources = {} if snapshot.manifest is None else snapshot.manifest.active.sources
    return None if committed is None else past_accepted_commits(stream, target.lake, committed, sources)


def _missing(
    stream: "Stream",
    target: "Target",
    snapshot: Snapshot,
    span: BackfillRange,
    spans: "Mapping[str, SourceSpan]",
) -> tuple[str, ...]:
    """Return what the sources no longer have; of a feed only what rows of the range came from."""
    missing = (
        *missing_in_sources(stream, target, snapshot, spans),
        *removed_versions(stream, target, snapshot, spans),
    )
    if not missing or stream.feed is None:
        return missing
    table = delta_log.open_table(snapshot.records.table())
    if table is None:
        return missing
    from pipelines.streaming.lifecycle.lost_origins import lost_origins

    return lost_origins(stream, target, table, span)


def _change(stream: "Stream", operation: Operation, readers: "Sequence[Stream]") -> Change:
    span = _span(operation)
    what = f"the keys that have a row with {span}" if _by_key(stream) else f"the rows with {span}"
    decided, lookback = operation.decided, operation.arguments.get("lookback")
    near = f" within {lookback} of the range" if lookback else ""
    effects = [
        f"What the stream has read{near} is read again, into a staging table; then {what} are replaced in one commit.",
        *([f"That is {'; '.join(decided['reads'])}."] if decided.get("reads") else ()),
        *decided["missing"],
    ]
    if not _by_key(stream):
        effects += [
            f"{reader.name} reads new rows of the table: its next run refuses the commit. Backfill or rebuild it as "
            "well (--downstream), or keep what it has (tidemill accept)."
            for reader in readers
            if stream.name in reader.upstreams
        ]
    if operation.done or operation.publishing:
        effects.append(
            f"The operation began at {operation.began_at}; done: {', '.join(operation.done) or 'nothing'}."
        )
    return Change(
        stream=stream.name,
        what=f"{what[0].upper()}{what[1:]} are computed again.",
        effects=tuple(effects),
        outcome=_outcome(operation),
    )


def _outcome(operation: Operation) -> str:
    """Return how the range changes, or has changed; empty before it is computed."""
    result = operation.result
    if not result:
        return ""
    verb = "has" if operation.ended_at else "would have"
    changed = f", {result['rows_changed']:,} changed" if result["rows_changed"] else ""
    return (
        f"The range had {counted(result['rows_before'], 'row')} and {verb} {counted(result['rows_after'], 'row')}: "
        f"{result['rows_added']:,} added, {result['rows_removed']:,} removed{changed}."
    )


def _by_key(stream: "Stream") -> bool:
    return isinstance(stream.main, DeltaMerge)


def _start(source: Source, first_version: int | None) -> "Start | None":
    """Return how the staging stream begins to read a source."""
    if not isinstance(source, StreamReading):
        return None
    return "snapshot" if first_version is None else "log"


def _span(operation: Operation) -> BackfillRange:
    decided = operation.decided
    return BackfillRange(decided["column"], decided["type"], decided["begin"], decided["end"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Backfilling(Staging):
    """A backfill that is carried out."""

    own_checkpoint: bool = True

    def complete(self, *, publish: bool) -> Operation:
        """Compute, then publish under the stream's lease if that is wanted; return the operation as it is then."""
        operation = computed(self.records, self.operation, self._compute)
        if not (publish or operation.publishing):
            return operation
        with leased_when_free(self.stream, self.records, operation.id) as lease:
            if not operation.publishing:
                self._catch_up()
                operation = replace(operation, result=self._result())
            steps = replace(self, operation=operation).steps()
            return carry_out(self.records, operation, steps, lease)

    def steps(self) -> tuple[Step, ...]:
        """Return the steps, in the order of `STEPS`."""
        runs = (self._sort_quarantine, self._replace_ranges, self._remove_staging)
        return tuple(map(Step, STEPS, runs))

    def _compute(self) -> dict[str, Any]:
        watermark_ms = self.records.snapshot().next_watermark_ms
        self._prepare(self._committed())
        self.run(planned_only=True)
        self._flush(watermark_ms)
        return self._result()

    def _committed(self) -> "OffsetEntry":
        """Return the offsets up to which the live stream has published rows.

        Raises:
            TerminalError: A batch is half done.
        """
        snapshot = self.records.snapshot()
        tail, entry = snapshot.tail, _read_up_to(self.stream, self.target, snapshot)
        if entry is None or tail.next_start.kind in ("repeat_batch", "no_data_batch"):
            raise TerminalError(
                f"its batch {tail.next_start.batch_id} is not complete.",
                stream=self.stream.name,
                fix=f"run the stream first: tidemill run {self.stream.name}",
            )
        return entry

    def _prepare(self, entry: "OffsetEntry") -> None:
        staged, spans = self.staged, self._spans(entry)
        number = self.operation.decided["generation"]
        if staged.manifest() is None:
            began = datetime.now(UTC).isoformat(timespec="seconds")
            live = self.records.manifest()
            recorded = {} if live is None else live.active.sources
            firsts = {name: span.first_version for name, span in spans.items()}
            starts = {
                name: SourceRecord(
                    start=_start(source, firsts.get(name)),
                    first_version=firsts.get(name),
                    accepted_versions=recorded.get(name, SourceRecord()).accepted_versions,
                )
                for name, source in self.stream.sources.items()
                if source.streaming
            }
            staged.control.mkdir(parents=True, exist_ok=True)
            generation = Generation(number=number, began_at=began, why=KIND, sources=starts)
            staged.write_manifest(Manifest(generations=(generation,)))
        query_id = self.operation.decided["query_id"]
        plan_first_batch(staged.checkpoint(number), self.records.checkpoint(number), entry, query_id, spans)

    def _spans(self, entry: "OffsetEntry") -> "Mapping[str, SourceSpan]":
        """Return what is read of each source; empty without a lookback."""
        lookback, span = self.operation.arguments.get("lookback"), _span(self.operation)
        length = None if lookback is None else duration(lookback, what="lookback")
        reading = Lookback(self.stream, self.target, self.records, span, length)
        return reading.checked(entry, self.operation.decided.get("parts"))

    def _flush(self, watermark_ms: int | None) -> None:
        """Emit what the live stream's watermark has closed: the last events that are read may be too early for it."""
        if self.operation.decided.get("parts") and plan_flush(
            self.staged, self.staged.snapshot().tail, watermark_ms
        ):
            self.run(planned_only=True)

    def _catch_up(self) -> None:
        """Compute what the live stream has read since, and what its watermark has closed."""
        snapshot, staged = self.records.snapshot(), self.staged.snapshot()
        entry = self._committed()
        if staged.tail.next_start.kind == "repeat_batch":  # an attempt that was killed has planned it
            self.run(planned_only=True)
            staged = self.staged.snapshot()
        plan_next_batch(self.staged, staged.tail, snapshot.checkpoint, entry, self._spans(entry))
        self.run(planned_only=True)
        self._flush(snapshot.next_watermark_ms)

    def _result(self) -> dict[str, Any]:
        """Return how the range changes, and the fingerprint of the code that computed it."""
        manifest = self.staged.manifest()
        fingerprint = None if manifest is None else manifest.active.fingerprint
        numbers: dict[str, Any] = dict(self._tables(session(self.engine)).compared(self.stream.main))
        # A rewind to this version or an earlier one takes the backfill back.
        numbers["table_version"] = delta_log.latest_version(self.records.table())
        return numbers if fingerprint is None else numbers | {"code": fingerprint}

    def _tables(self, spark: "SparkSession") -> RangeTables:
        return RangeTables(
            spark=spark,
            span=_span(self.operation),
            live=self.records,
            staged=self.staged,
            operation=self.operation,
        )

    def _sort_quarantine(self) -> None:
        if self.stream.feed is None:
            return
        spark = session(self.engine)
        live, staged = (
            None
            if delta_log.open_table(records.table(QUARANTINE)) is None
            else spark.read.format("delta").load(str(records.table(QUARANTINE)))
            for records in (self.records, self.staged)
        )
        if staged is not None:
            last = self.records.snapshot().last_commit
            staged = staged.withColumn("batch_id", batch_column(0, last)["batch_id"])
        kept = None
        if live is not None and self.operation.decided.get("parts"):  # records that were not read stay
            live, kept = divided(live, self.staged)
        content = sorted_quarantine(self.stream, _span(self.operation), live, staged)
        if content is None:
            return
        content = content if kept is None else content.unionByName(kept)
        writer = (
            content.write.format("delta").mode("overwrite").options(**self._tables(spark).commit(QUARANTINE))
        )
        if live is not None:
            writer = writer.option("replaceWhere", "true")
        writer.save(str(self.records.table(QUARANTINE)))

    def _replace_ranges(self) -> None:
        changes = ("rows_added", "rows_removed", "rows_changed")
        if len(self.stream.sinks) == 1 and not any(map(self.operation.result.get, changes)):
            return  # a commit that changes nothing would stop every reader of the table
        tables = self._tables(session(self.engine))
        for sink in self.stream.sinks:
            tables.replace(sink)

    def _remove_staging(self) -> None:
        if not self.operation.arguments["keep_staging"]:
            self.remove()

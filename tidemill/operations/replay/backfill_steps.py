"""How a backfill is carried out: it computes beside the live stream, and then publishes in steps.

The stream runs in a staging folder, with a checkpoint of its own, over what the live stream has read and nothing
more: its first batch is planned with the offsets of the live checkpoint (`planned_batch.py`). A stateful stream then
emits what the watermark has closed, as every run does. Under the live stream's lease, what that stream has read in the
meantime is computed as well, and the result is published. The steps of the publication:
- `quarantine`: records that are refused now are added, and those that have a row now are removed.
- `tables`: the range of each table is replaced in one commit.
- `staging`: the staging folder is removed.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.source import Source
from tidemill.errors import TerminalError
from tidemill.operations.core.staging import Staging
from tidemill.operations.core.steps import Step, session
from tidemill.operations.replay.backfill_quarantine import quarantine_after
from tidemill.operations.replay.backfill_range import BackfillRange
from tidemill.operations.replay.follow import past_accepted_commits
from tidemill.operations.replay.lookback import Lookback
from tidemill.operations.replay.planned_batch import plan_first_batch, plan_flush, plan_next_batch
from tidemill.operations.replay.range_tables import RangeTables
from tidemill.records.manifest import Generation, Manifest
from tidemill.records.stream_records import Snapshot
from tidemill.text.durations import parse_duration
from tidemill.text.names import QUARANTINE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from tidemill.checkpoint import OffsetEntry
    from tidemill.connectors.answers import SourceSpan
    from tidemill.connectors.source_record import Start
    from tidemill.definitions.stream import Stream
    from tidemill.target.target import Target

KIND = "backfill"
STEPS = ("quarantine", "tables", "staging")


def read_up_to(stream: "Stream", target: "Target", snapshot: Snapshot) -> "OffsetEntry | None":
    """Return the offsets up to which a stream has published rows; None before its first batch is complete."""
    committed = snapshot.tail.committed_offsets
    sources = snapshot.sources
    return None if committed is None else past_accepted_commits(stream, target.lake, committed, sources)


def _start(source: Source, first_version: int | None) -> "Start | None":
    """Return how the staging stream begins to read a source."""
    if source.upstream is None:
        return None
    return "snapshot" if first_version is None else "log"


@dataclass(frozen=True, slots=True)
class Backfilling(Staging):
    """A backfill that is carried out."""

    own_checkpoint: bool = True

    def steps(self) -> tuple[Step, ...]:
        """Return the steps, in the order of `STEPS`."""
        runs = (self._sort_quarantine, self._replace_ranges, self._remove_staging)
        return tuple(map(Step, STEPS, runs))

    def compute(self) -> dict[str, Any]:
        """Compute what the live stream has read, and return how the range changes."""
        watermark_ms = self.records.snapshot().next_watermark_ms
        self._prepare(self._committed())
        self.run(planned_only=True)
        self._flush(watermark_ms)
        return self.result()

    def _committed(self) -> "OffsetEntry":
        """Return the offsets up to which the live stream has published rows."""
        snapshot = self.records.snapshot()
        tail, entry = snapshot.tail, read_up_to(self.stream, self.target, snapshot)
        if entry is None or tail.next_start.kind in ("repeat_batch", "no_data_batch"):
            raise TerminalError(
                f"its batch {tail.next_start.batch_id} is not complete.",
                stream=self.stream.name,
                fix=f"run the stream first: tidemill run {self.stream.name}",
                code="batch-not-finished",
            )
        return entry

    def _prepare(self, entry: "OffsetEntry") -> None:
        staged, spans = self.staged, self._spans(entry)
        number = self.operation.decided["generation"]
        if staged.manifest() is None:
            live = self.records.manifest()
            recorded = {} if live is None else live.active.sources
            firsts = {name: record.first_version for name, record in recorded.items()}
            firsts |= {name: span.first_version for name, span in spans.items() if span.is_part}
            starts = {
                name: SourceRecord(
                    # The range is computed from the table that the stream has read.
                    binding=recorded.get(name, SourceRecord()).binding if source.catalog_table else None,
                    start=_start(source, firsts.get(name)),
                    first_version=firsts.get(name),
                    schema=recorded.get(name, SourceRecord()).schema,
                    accepted_versions=recorded.get(name, SourceRecord()).accepted_versions,
                )
                for name, source in self.stream.sources.items()
                if source.streaming or source.infers_schema or source.catalog_table
            }
            generation = Generation(number=number, why=KIND, sources=starts)
            staged.write_manifest(Manifest(generations=(generation,)))
        query_id = self.operation.decided["query_id"]
        plan_first_batch(staged.checkpoint(number), self.records.checkpoint(number), entry, query_id, spans)

    def _spans(self, entry: "OffsetEntry") -> "Mapping[str, SourceSpan]":
        """Return what is read of each source; empty without a lookback."""
        lookback, span = (
            self.operation.arguments.get("lookback"),
            BackfillRange.decided(self.operation.decided),
        )
        length = None if lookback is None else parse_duration(lookback, field="lookback")
        reading = Lookback(self.stream, self.target, self.records, span, length)
        return reading.checked(entry, self.operation.decided.get("parts"))

    def _flush(self, watermark_ms: int | None) -> None:
        """Emit what the live stream's watermark has closed: the last events that are read may be too early for it."""
        if self.operation.decided.get("parts") and plan_flush(self.staged.snapshot(), watermark_ms):
            self.run(planned_only=True)

    def catch_up(self) -> None:
        """Compute what the live stream has read since, and what its watermark has closed."""
        snapshot, staged = self.records.snapshot(), self.staged.snapshot()
        entry = self._committed()
        if staged.tail.next_start.kind == "repeat_batch":  # an attempt that was killed has planned it
            self.run(planned_only=True)
            staged = self.staged.snapshot()
        plan_next_batch(staged, snapshot.checkpoint, entry, self._spans(entry))
        self.run(planned_only=True)
        self._flush(snapshot.next_watermark_ms)

    def result(self) -> dict[str, Any]:
        """Return how the range changes, and the fingerprint of the code that computed it."""
        manifest = self.staged.manifest()
        fingerprint = None if manifest is None else manifest.active.fingerprint
        with session(self.engine, self.lease) as spark:
            numbers: dict[str, Any] = dict(self._tables(spark).compared(self.stream.main))
        # A rewind to this version or an earlier one takes the backfill back.
        numbers["table_version"] = self.records.table().log.latest_version()
        return numbers if fingerprint is None else numbers | {"code": fingerprint}

    def _tables(self, spark: "SparkSession") -> RangeTables:
        return RangeTables(
            spark=spark,
            span=BackfillRange.decided(self.operation.decided),
            live=self.records,
            staged=self.staged,
            operation=self.operation,
        )

    def _sort_quarantine(self) -> None:
        with session(self.engine, self.lease) as spark:
            tables = self._tables(spark)
            content = quarantine_after(
                self.stream, self.target, tables, is_part=bool(self.operation.decided.get("parts"))
            )
            if content is None:
                return
            writer = (
                content.write.format("delta")
                .mode("overwrite")
                .option("mergeSchema", "true")
                .options(**tables.commit(QUARANTINE))
            )
            path = self.records.table(QUARANTINE)
            if path.open() is not None:
                writer = writer.option("replaceWhere", "true")
            writer.save(path.uri)

    def _replace_ranges(self) -> None:
        changes = ("rows_added", "rows_removed", "rows_changed")
        if len(self.stream.tables) == 1 and not any(map(self.operation.result.get, changes)):
            return  # a commit that changes nothing would stop every reader of the table
        with session(self.engine, self.lease) as spark:
            tables = self._tables(spark)
            for sink in self.stream.tables:
                tables.replace(sink)

    def _remove_staging(self) -> None:
        if not self.operation.arguments["keep_staging"]:
            self.remove()

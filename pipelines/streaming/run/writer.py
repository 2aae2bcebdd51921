"""One micro-batch into its tables, exactly once: the foreachBatch function.

The steps, in order:
1. A batch that the main table has is executed and writes nothing: its plan must run, because the
   watermark and the state come from running it.
2. A feed's records are computed once; those that break a rule go to the quarantine table. In a repeat they
   replace what the earlier attempt put there.
3. The other targets are written, in the order they are declared.
4. The main table commits. That is the commit point of the batch.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.streaming import delta_log
from pipelines.streaming.checkpoint import read_tail
from pipelines.streaming.errors import CheckpointError
from pipelines.streaming.expectations import Expect, counts, kept
from pipelines.streaming.names import StreamName
from pipelines.streaming.records.lake import MAIN, Lake
from pipelines.streaming.records.lease import assert_highest
from pipelines.streaming.run.faults import pause_point
from pipelines.streaming.sinks import Sink
from pipelines.streaming.sinks.sink import CommitMetadata, Transaction
from pipelines.streaming.sources.delta import BATCH
from pipelines.streaming.sources.feed import ORIGIN, RAW, VIOLATED

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWriter:
    """The foreachBatch function of a stream: plain values only, because Spark Connect ships it to its server.

    Attributes:
        stream: The stream's name.
        lake: The lake.
        generation: The checkpoint's generation.
        epoch: The lease's epoch, checked before each write.
        sinks: The targets, the main one last.
        fingerprint: The fingerprint of the plan.
        static_versions: The Delta version of each static reading.
        repeat: Whether an earlier run may have left something of this batch behind.
        ingest: The transform of a feed's records, which runs here, after the quarantine; None elsewhere.
        expect: Rules on what `ingest` returns; elsewhere they are in the query's plan.
    """

    stream: StreamName
    lake: Lake
    generation: int
    epoch: int
    sinks: tuple[Sink, ...]
    fingerprint: str
    static_versions: dict[str, int]
    repeat: bool = False
    ingest: "Callable[..., DataFrame] | None" = None
    expect: tuple[Expect, ...] = ()

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        """Writes one micro-batch."""
        pause_point("before-batch", self.stream)
        query_id = read_tail(self.lake.checkpoint(self.stream, self.generation)).query_id
        if query_id is None:  # Spark has written it before the first batch
            raise CheckpointError("its checkpoint has no metadata file.", stream=self.stream)
        if self._has(query_id, batch_id):
            rows.write.format("noop").mode("overwrite").save()
            return
        rows.persist()
        try:
            if self.ingest is None:
                # Counting runs the whole plan before any write: a write that Delta skips must not leave
                # partitions of the state uncommitted.
                rows.count()
                self._write(rows, query_id, batch_id, {})
            else:
                self._ingest(rows, query_id, batch_id)
        finally:
            rows.unpersist()

    def _has(self, query_id: str, batch_id: int) -> bool:
        table = delta_log.open_table(self.lake.table(self.stream))
        if table is None:
            return False
        version = table.transaction_version(query_id)
        return version is not None and version >= batch_id

    def _ingest(self, records: "DataFrame", query_id: str, batch_id: int) -> None:
        from pyspark.sql import functions as F

        refused = records.where(F.size(VIOLATED) > 0)
        quarantined = refused.count()
        self._quarantine(refused, quarantined, Transaction(f"{query_id}/quarantine", batch_id))
        pause_point("after-quarantine", self.stream)
        accepted = records.where(F.size(VIOLATED) == 0).drop(RAW, VIOLATED)
        output = self.ingest(accepted).withColumn(BATCH, batch_column(self.generation, batch_id))  # type: ignore[misc]
        counted: dict[str, Any] = {"rows_quarantined": quarantined}
        if self.expect:
            found = output.agg(*counts(self.expect)).first()
            numbers = {name: value or 0 for name, value in (found.asDict() if found else {}).items()}
            counted["rows_dropped"] = numbers.pop("dropped")
            counted["violations"] = {name.removeprefix("violated_"): n for name, n in numbers.items()}
            output = kept(output, self.expect)
        self._write(output, query_id, batch_id, counted)

    def _quarantine(self, refused: "DataFrame", count: int, transaction: Transaction) -> None:
        """The batch's refused records; in a repeat they replace those of the earlier attempt."""
        from pyspark.sql import functions as F

        place = self.lake.quarantine(self.stream)
        if not count and not (self.repeat and delta_log.open_table(place)):
            return
        self._check_lease()
        writer = refused.select(
            F.col(RAW).alias("raw"),
            F.col(VIOLATED).alias("violated"),
            F.col(ORIGIN).alias("origin"),
            F.lit(self.generation).alias("generation"),
            F.lit(transaction.version).cast("bigint").alias("batch_id"),
            F.current_timestamp().alias("quarantined_at"),
        ).write.format("delta")
        if self.repeat:
            this_batch = f"generation = {int(self.generation)} AND batch_id = {int(transaction.version)}"
            writer = writer.mode("overwrite").option("replaceWhere", this_batch)
        else:
            writer = writer.mode("append").option("txnAppId", transaction.app_id)
            writer = writer.option("txnVersion", str(transaction.version))
        writer.save(str(place))

    def _write(self, output: "DataFrame", query_id: str, batch_id: int, counted: dict[str, Any]) -> None:
        note = CommitMetadata(
            batch_id=batch_id,
            fingerprint=self.fingerprint,
            static_versions=self.static_versions,
            **counted,
        )
        for sink in self.sinks:
            self._check_lease()
            app_id = query_id if sink.name == MAIN else f"{query_id}/{sink.name}"
            sink.write(output, self.lake.table(self.stream, sink.name), Transaction(app_id, batch_id), note)
            if sink is not self.sinks[-1]:
                pause_point("between-sinks", self.stream)
        pause_point("after-sink", self.stream)

    def _check_lease(self) -> None:
        assert_highest(self.lake.control(self.stream) / "lease", self.stream, self.epoch)


def batch_column(generation: int, batch_id: int) -> Any:
    """The column `_batch`: the generation and the batch that wrote a row."""
    from pyspark.sql import functions as F

    return F.struct(F.lit(generation).alias("generation"), F.lit(batch_id).cast("bigint").alias("batch_id"))

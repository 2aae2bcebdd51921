"""One micro-batch into its tables, exactly once: the foreachBatch function.

The steps, in order:
a. A batch that the main table has is executed and writes nothing: its plan must run, because the watermark and
   the state come from running it.
b. A feed's records are computed once; those that violate a rule go to the quarantine table. In a repeat they
   replace the records of the earlier attempt.
c. The output is computed once for all sinks and the counts of the expectations, so that a random value is the same
   in every table; then the other sinks are written, in the order they are declared.
d. The main table commits. That is the commit point of the batch.
"""

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.streaming import delta_log
from pipelines.streaming.checkpoint import read_tail
from pipelines.streaming.columns import BATCH, ORIGIN, RAW, VIOLATED
from pipelines.streaming.errors import CheckpointError
from pipelines.streaming.expectations import Expect, counts, kept
from pipelines.streaming.records import StreamRecords, transaction_app_id
from pipelines.streaming.run.classic import release_checkpoint
from pipelines.streaming.run.pause import pause_point
from pipelines.streaming.sinks import Sink
from pipelines.streaming.sinks.sink import CommitMetadata, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWriter:
    """The foreachBatch function of a stream: plain values only, because Spark Connect ships it to its server.

    Attributes:
        records: The stream's records.
        generation: The checkpoint's generation.
        epoch: The lease's epoch, checked before each write.
        sinks: The sinks, the main one last.
        fingerprint: The fingerprint of the plan.
        static_versions: The Delta version of each static reading.
        repeat: Whether an earlier run may have left a part of this batch behind.
        ingest: The transform of a feed's records, which runs here, after the quarantine; None elsewhere.
        expect: Rules on the output of `ingest`; elsewhere they are in the query's plan.
    """

    records: StreamRecords
    generation: int
    epoch: int
    sinks: tuple[Sink, ...]
    fingerprint: str
    static_versions: dict[str, int]
    repeat: bool = False
    ingest: "Callable[..., DataFrame] | None" = None
    expect: tuple[Expect, ...] = ()

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        """Write one micro-batch."""
        pause_point("before-batch", self.records.stream)
        query_id = read_tail(self.records.checkpoint(self.generation)).query_id
        if query_id is None:  # Spark has written it before the first batch
            raise CheckpointError("its checkpoint has no metadata file.", stream=self.records.stream)
        main = self.records.sink_table(query_id)
        if main is not None and main.newest_batch >= batch_id:
            rows.write.format("noop").mode("overwrite").save()
            return
        if self.ingest is not None:
            with _cached(rows):
                self._ingest(rows, query_id, batch_id)
        elif self._reads_once:
            self._write(rows, query_id, batch_id, {})
        else:
            # The whole plan runs before any write: a write that Delta skips must not leave partitions of the
            # state uncommitted.
            with _computed_once(rows) as output:
                self._write(output, query_id, batch_id, {})

    @property
    def _reads_once(self) -> bool:
        """Whether writing the batch computes it once."""
        return len(self.sinks) == 1 and self.sinks[0].reads_rows_once

    def _ingest(self, records: "DataFrame", query_id: str, batch_id: int) -> None:
        from pyspark.sql import functions as F

        violates = F.size(VIOLATED) > 0
        counted = _numbers(
            records.agg(F.count(F.lit(1)).alias("rows_read"), F.count_if(violates).alias("rows_quarantined"))
        )
        transaction = Transaction(transaction_app_id(query_id, QUARANTINE), batch_id)
        self._quarantine(records.where(violates), counted["rows_quarantined"], transaction)
        pause_point("after-quarantine", self.records.stream)
        accepted = records.where(~violates).drop(RAW, VIOLATED)
        output = self.ingest(accepted).withColumn(BATCH, batch_column(self.generation, batch_id))  # type: ignore[misc]
        if not self.expect and self._reads_once:
            self._write(output, query_id, batch_id, counted)
            return
        with _computed_once(output) as rows:
            if self.expect:
                violations = _numbers(rows.agg(*counts(rows, self.expect)))
                counted["rows_out"] = violations.pop("rows")
                counted["rows_dropped"] = violations.pop("dropped")
                counted["violations"] = {name.removeprefix("violated_"): n for name, n in violations.items()}
            self._write(kept(rows, self.expect), query_id, batch_id, counted)

    def _quarantine(self, refused: "DataFrame", count: int, transaction: Transaction) -> None:
        """Write the batch's refused records; in a repeat they replace those of the earlier attempt."""
        from pyspark.sql import functions as F

        path = self.records.table(QUARANTINE)
        if not count and not (self.repeat and delta_log.open_table(path)):
            return
        self.records.assert_lease(self.epoch)
        writer = refused.select(
            F.col(RAW).alias("raw"),
            F.col(VIOLATED).alias("violated"),
            F.col(ORIGIN).alias("origin"),
            F.lit(self.generation).alias("generation"),
            F.lit(transaction.version).cast("bigint").alias("batch_id"),
            F.current_timestamp().alias("quarantined_at"),
        ).write.format("delta")
        # The commit of a repeat has no transaction, which Delta would skip.
        metadata = json.dumps({"tidemill": {"batch_id": transaction.version}})
        writer = writer.option("userMetadata", metadata)
        if self.repeat:
            this_batch = f"generation = {int(self.generation)} AND batch_id = {int(transaction.version)}"
            writer = writer.mode("overwrite").option("replaceWhere", this_batch)
        else:
            writer = writer.mode("append").option("txnAppId", transaction.app_id)
            writer = writer.option("txnVersion", str(transaction.version))
        writer.save(str(path))

    def _write(self, output: "DataFrame", query_id: str, batch_id: int, counted: dict[str, Any]) -> None:
        metadata = CommitMetadata(
            batch_id=batch_id,
            fingerprint=self.fingerprint,
            static_versions=self.static_versions,
            **counted,
        )
        for sink in self.sinks:
            self.records.assert_lease(self.epoch)
            transaction = Transaction(transaction_app_id(query_id, sink.name), batch_id)
            sink.write(output, self.records.table(sink.name), transaction, metadata)
            if sink is not self.sinks[-1]:
                pause_point("between-sinks", self.records.stream)
        pause_point("after-sink", self.records.stream)


@contextmanager
def _computed_once(rows: "DataFrame") -> "Iterator[DataFrame]":
    """Yield the rows as one execution of their plan computed them.

    A cache would not do. Delta optimizes the source of a MERGE before it looks for cached plans, so it computes
    random values and the current time again, and Spark cannot cache a sorted result of the output mode complete
    (`key not found`).
    """
    computed = rows.localCheckpoint(eager=True)
    try:
        yield computed
    finally:
        release_checkpoint(computed)


@contextmanager
def _cached(rows: "DataFrame") -> "Iterator[None]":
    """Keep rows while they are used more than once."""
    rows.persist()
    try:
        yield
    finally:
        rows.unpersist()


def _numbers(aggregates: "DataFrame") -> dict[str, Any]:
    """Return one row of counts by name; an aggregate over no rows counts 0."""
    row = aggregates.first()
    return {name: number or 0 for name, number in (row.asDict() if row else {}).items()}


def batch_column(generation: int, batch_id: int) -> Any:
    """Return the column `_batch`: the generation and the batch that wrote a row."""
    from pyspark.sql import functions as F

    return F.struct(F.lit(generation).alias("generation"), F.lit(batch_id).cast("bigint").alias("batch_id"))

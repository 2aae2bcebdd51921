"""One micro-batch into its sinks, and into its tables exactly once: the foreachBatch function.

The steps, in order:
a. A batch that the main table has is executed and writes nothing: its plan must run, because the watermark and
   the state come from running it. Refused records of a feed that a kill left out are written by another function, see
   unfinished_quarantine.py.
b. The output is computed once for all sinks and the counts of the expectations, so that a random value is the same
   everywhere; then the other sinks are written, in the order they are declared. A repeat leaves out those that are
   known to have the batch.
c. The main table commits. That is the commit point of the batch.

Where one append takes the batch of a feed, its records are counted by the job that writes it, and the refused ones are
written afterwards. Otherwise, and where expectations send rows of the output to quarantine, the output has been
computed and counted before anything is written, and the quarantine goes first.
"""

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidemill.checkpoint import read_tail
from tidemill.connectors.violations import counts, kept, passing, refused_count, with_refusals
from tidemill.definitions.columns import BATCH, RAW, VIOLATED
from tidemill.definitions.expectations import Expect
from tidemill.definitions.sink import BatchIdentity, CommitMetadata, Sink, SinkBatch
from tidemill.errors import CheckpointError, TidemillError
from tidemill.records.batch import BatchCounts
from tidemill.records.stream_records import SinkTable, StreamRecords
from tidemill.run.batch.counted import CountedRows, NamedObservations, numbers
from tidemill.run.batch.quarantine import (
    BUCKETS,
    has_quarantined,
    of_buckets,
    quarantine,
    record_counts,
    refused_buckets,
    refused_records,
    refused_rows,
    united,
)
from tidemill.run.batch.validation_rules import ValidationRules
from tidemill.run.pause_points import pause_point
from tidemill.run.spark.classic import local_checkpoint, release_checkpoint
from tidemill.run.spark.error_translation import CarriedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """What the batches of a feed need, in addition.

    Attributes:
        function: The transform of its records, which runs here, because the quarantine needs the raw record.
        validate: Parses and validates its lines; None where the query's plan does that.
        validation: How the records are validated.
        repeatable: Whether the rules refuse the same records each time that they are evaluated.
        reads_all: Whether the function reads each record whatever the records are.
        expect: Rules on the output of `function`; elsewhere they are in the query's plan.
        observations: What `function` observes, likewise.
    """

    function: "Callable[..., DataFrame]"
    validate: "Callable[[DataFrame], DataFrame] | None"
    validation: ValidationRules
    repeatable: bool
    reads_all: bool
    expect: tuple[Expect, ...] = ()
    observations: tuple[str, ...] = ()

    def validated(self, rows: "DataFrame") -> "DataFrame":
        """Return the validated records of a batch."""
        return rows if self.validate is None else self.validate(rows)

    def refused(self, rows: "DataFrame", buckets: str) -> "DataFrame":
        """Return validated records of a batch; those that are refused are among them.

        Args:
            buckets: What `refused_buckets` returned for it.
        """
        if self.validate is None:
            return rows
        # The observation is a barrier: a filter that passes it would parse all lines before they are left out.
        return self.validate(of_buckets(rows, buckets)).observe("tidemill_refused", *record_counts())


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWriter:
    """The foreachBatch function of a stream: plain values only, because Spark Connect ships it to its server.

    Attributes:
        epoch: The lease's epoch, checked before each write.
        sinks: The sinks, the main one last.
        connections: What each of them needs of the target, by name.
        fingerprint: The fingerprint of the plan.
        static_versions: The Delta version of each static reading.
        repeat: Whether an earlier run may have left a part of this batch behind.
        quarantines_rows: Whether expectations send rows of the output to quarantine.
        fires_timers: Whether the batch reads no rows and fires timers: where none is due, no sink gets a commit.
        ingest: What the batches of a feed need; None elsewhere.
    """

    records: StreamRecords
    generation: int
    epoch: int
    sinks: tuple[Sink, ...]
    fingerprint: str
    static_versions: dict[str, int]
    connections: "Mapping[str, Any]" = field(default_factory=dict)
    repeat: bool = False
    quarantines_rows: bool = False
    fires_timers: bool = False
    ingest: Ingest | None = None

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        """Write one micro-batch."""
        try:
            self._batch(rows, batch_id)
        except TidemillError as error:
            raise CarriedError(error) from None

    def _batch(self, rows: "DataFrame", batch_id: int) -> None:
        pause_point("before-batch", self.records.stream)
        query_id = read_tail(self.records.checkpoint(self.generation)).query_id
        if query_id is None:  # Spark has written it before the first batch
            raise CheckpointError(
                "its checkpoint has no metadata file.", stream=self.records.stream, code="checkpoint-missing"
            )
        main = self.records.sink_table(query_id)
        if main is not None and main.has(batch_id):
            self._execute(rows, query_id, batch_id)
        elif self.ingest is not None:
            self._ingest(rows, self.ingest, query_id, batch_id)
        else:
            self._write_output(rows, query_id, batch_id, main)

    def _write_output(self, rows: "DataFrame", query_id: str, batch_id: int, main: SinkTable | None) -> None:
        """Write the output of the query: its refused rows to quarantine, and then the others."""
        stale = self._is_stale(query_id, batch_id)
        divides = self.quarantines_rows or stale
        may_be_left_out = main is not None and self.fires_timers and not stale
        if self._reads_once and not (divides or may_be_left_out):
            self._write(rows, query_id, batch_id)
            return
        # The whole plan runs before any write: a write that Delta skips must not leave partitions of the
        # state uncommitted.
        with _computed_once(rows) as output:
            if main is not None and may_be_left_out and output.isEmpty():
                self._count(batch_id, BatchCounts(query_id=query_id, follows=main.newest_batch))
            elif divides:
                self._divide(output, query_id, batch_id, stale=stale)
            else:
                self._write(output, query_id, batch_id)

    def _divide(self, output: "DataFrame", query_id: str, batch_id: int, *, stale: bool) -> None:
        rows = output if self.quarantines_rows else with_refusals(output, ())
        counted = numbers(rows.agg(refused_count()))
        refused = counted["rows_out_quarantined"]
        if refused or stale:
            self._quarantine(refused_rows(rows), query_id, batch_id, stale=stale)
        self._write(passing(rows), query_id, batch_id, rows_quarantined=refused, **counted)

    def _is_stale(self, query_id: str, batch_id: int) -> bool:
        """Return whether an earlier attempt has quarantined a part of the batch, perhaps by other rules."""
        return self.repeat and has_quarantined(self.records, query_id, batch_id)

    def _execute(self, rows: "DataFrame", query_id: str, batch_id: int) -> None:
        """Execute a batch that the main table has; its commit has all counts but that of the lines of a feed."""
        if self.ingest is None:
            rows.write.format("noop").mode("overwrite").save()
            return
        counted = numbers(self.ingest.validated(rows).agg(*record_counts()))
        lines = BatchCounts(
            query_id=query_id, rows_read=counted["rows_read"], rows_blank=counted["rows_blank"]
        )
        self._count(batch_id, lines)

    @property
    def _reads_once(self) -> bool:
        """Whether writing the batch computes it once."""
        return len(self.sinks) == 1 and self.sinks[0].reads_rows_once

    def _ingest(self, records: "DataFrame", ingest: Ingest, query_id: str, batch_id: int) -> None:
        # What an earlier attempt has refused is replaced before the commit.
        stale = self._is_stale(query_id, batch_id)
        if not ingest.repeatable:
            with _computed_once(ingest.validated(records)) as validated:
                counted = self._computed(
                    validated, replace(ingest, validate=None), query_id, batch_id, stale=stale
                )
        elif self._reads_once and not (stale or self.quarantines_rows):
            counted = self._in_one_job(records, ingest, query_id, batch_id)
        else:
            counted = self._computed(records, ingest, query_id, batch_id, stale=stale)
        self._count(batch_id, BatchCounts(query_id=query_id, **counted))

    def _count(self, batch_id: int, counts: BatchCounts) -> None:
        self.records.assert_lease(self.epoch)
        self.records.add_counts(self.generation, batch_id, counts)

    def _in_one_job(
        self, records: "DataFrame", ingest: Ingest, query_id: str, batch_id: int
    ) -> dict[str, Any]:
        """Write the main table by a job that counts the records, then the refused ones; return the counts."""
        validated = _validated(records, ingest)
        output = self._output(validated.rows, ingest, batch_id)
        observed = NamedObservations(output, ingest.observations)
        if not ingest.expect:
            self._write(output, query_id, batch_id, validation=ingest.validation)
            counted = validated.numbers()
        else:
            expected = CountedRows(output, *counts(output, ingest.expect))
            rows = kept(expected.rows, ingest.expect)
            self._write(rows, query_id, batch_id, validation=ingest.validation)
            counted = validated.numbers() | _of_output(expected.numbers())
        buckets = counted.pop(BUCKETS)
        if counted["rows_quarantined"]:
            refused = refused_records(ingest.refused(records, buckets))
            self._quarantine(refused, query_id, batch_id, stale=False)
        return counted | {"observed": observed.values()}

    def _computed(
        self, records: "DataFrame", ingest: Ingest, query_id: str, batch_id: int, *, stale: bool
    ) -> dict[str, Any]:
        """Compute the output, write what is refused, and then the output; return the counts."""
        validated = _validated(records, ingest)
        output = self._output(validated.rows, ingest, batch_id)
        observed = NamedObservations(output, ingest.observations)
        if self.quarantines_rows:
            output = with_refusals(output, ingest.expect)
        with _computed_once(output) as rows:
            counted = validated.numbers()
            buckets, refused = counted.pop(BUCKETS), []
            if counted["rows_quarantined"] or not self.quarantines_rows:
                refused.append(refused_records(ingest.refused(records, buckets)))
            if ingest.expect:
                counted |= _of_output(numbers(rows.agg(*counts(rows, ingest.expect))))
            if self.quarantines_rows:
                refused.append(refused_rows(rows))
                counted |= numbers(rows.agg(refused_count()))
                counted["rows_quarantined"] += counted["rows_out_quarantined"]
            if counted["rows_quarantined"] or stale:
                self._quarantine(united(refused), query_id, batch_id, stale=stale)
            committed = {name: count for name, count in counted.items() if name != "rows_blank"}
            good = passing(rows) if self.quarantines_rows else rows
            self._write(kept(good, ingest.expect), query_id, batch_id, **committed)
        return counted | {"observed": observed.values()}

    def _output(self, validated: "DataFrame", ingest: Ingest, batch_id: int) -> "DataFrame":
        """Return what the function makes of the accepted records."""
        accepted = validated.where(f"size({VIOLATED}) = 0").drop(RAW, VIOLATED)
        return ingest.function(accepted).withColumn(BATCH, batch_column(self.generation, batch_id))

    def _quarantine(self, refused: "DataFrame", query_id: str, batch_id: int, *, stale: bool) -> None:
        self.records.assert_lease(self.epoch)
        quarantine(refused, self.records, query_id, batch_id, generation=self.generation, replace=stale)
        pause_point("after-quarantine", self.records.stream)

    def _write(self, output: "DataFrame", query_id: str, batch_id: int, **known: Any) -> None:
        """Write the output into each sink, the main table last; `known` is what their commits record."""
        metadata = CommitMetadata(
            batch_id=batch_id, fingerprint=self.fingerprint, static_versions=self.static_versions, **known
        )
        identity = BatchIdentity(str(self.records.stream), query_id, batch_id)
        for sink in self.sinks:
            context = self.records.sink_context(sink.name, self.connections.get(sink.name))
            last = sink.last_batch(context, query_id) if self.repeat else None
            if last is not None and last >= batch_id:
                continue
            self.records.assert_lease(self.epoch)
            sink.write(output, SinkBatch(identity, context, metadata))
            if sink is not self.sinks[-1]:
                pause_point("between-sinks", self.records.stream)
        pause_point("after-sink", self.records.stream)


def _validated(records: "DataFrame", ingest: Ingest) -> CountedRows:
    counts = (*record_counts(), refused_buckets())
    return CountedRows(ingest.validated(records), *counts, reads_all=ingest.reads_all)


@contextmanager
def _computed_once(rows: "DataFrame") -> "Iterator[DataFrame]":
    """Yield the rows as one execution of their plan computed them.

    A cache would not do. Delta optimizes the source of a MERGE before it looks for cached plans, so it computes
    random values and the current time again, and Spark cannot cache a sorted result of the output mode complete
    (`key not found`).
    """
    computed = local_checkpoint(rows)
    try:
        yield computed
    finally:
        release_checkpoint(computed)


def _of_output(counted: dict[str, Any]) -> dict[str, Any]:
    """Return the counts of the expectations by the names of the ledger."""
    rows, dropped = counted.pop("rows"), counted.pop("dropped")
    violations = {name.removeprefix("violated_"): count for name, count in counted.items()}
    return {"rows_out": rows, "rows_dropped": dropped, "violations": violations}


def batch_column(generation: int, batch_id: int) -> Any:
    """Return the column `_batch`: the generation and the batch that wrote a row."""
    from pyspark.sql import functions as F

    return F.struct(F.lit(generation).alias("generation"), F.lit(batch_id).cast("bigint").alias("batch_id"))

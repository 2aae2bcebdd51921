"""The rest of a batch that the main table of a feed has and the quarantine lacks, after a kill between the two.

The records are judged as those in the table were, by the schema and the rules that its commit carries, so each is in
one of the two tables, even if the code has changed. The function does not run.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipelines.streaming import delta_log
from pipelines.streaming.records import Snapshot, StreamRecords, transaction_app_id
from pipelines.streaming.records.batch_counts import BatchCounts
from pipelines.streaming.run.batch_record import commit_metadata
from pipelines.streaming.run.counted import numbers
from pipelines.streaming.run.judgement import Judgement, as_judged
from pipelines.streaming.run.quarantine import QUARANTINE, has_quarantined, quarantine, record_counts
from pipelines.streaming.sinks.sink import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipelines.streaming.stream import Stream


def judgement_of_batch(snapshot: Snapshot, query_id: str, batch_id: int) -> Judgement | None:
    """Return how the records of a batch were judged whose quarantine follows its commit in the main table.

    None where the main table does not have the batch, and where its quarantine came first.
    """
    table = snapshot.records.sink_table(query_id)
    if table is None or table.newest_batch < batch_id:
        return None
    commit = delta_log.commits_of_batches(table.path, query_id, batch_id).get(batch_id)
    return commit_metadata(commit).get("judgement")


def judging_as(stream: "Stream", judgement: Judgement) -> "Stream":
    """Return a stream that judges the records of its feed in that way."""
    feeds = {name: as_judged(stream.feed, judgement) for name in stream.sources if stream.feed is not None}
    return replace(stream, sources=feeds, query=replace(stream.query, options=judgement["confs"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedWriter:
    """The foreachBatch function that writes the refused records of a batch: plain values only, as in BatchWriter.

    Attributes:
        records: The stream's records.
        generation: The checkpoint's generation.
        epoch: The lease's epoch, checked before each write.
        query_id: Spark's query id.
    """

    records: StreamRecords
    generation: int
    epoch: int
    query_id: str

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        """Write the refused records of one micro-batch, unless the quarantine has them."""
        counted = numbers(rows.agg(*record_counts()))
        self.records.assert_lease(self.epoch)
        if counted["rows_quarantined"] and not has_quarantined(self.records, self.query_id, batch_id):
            quarantine(
                rows,
                self.records.table(QUARANTINE),
                generation=self.generation,
                transaction=Transaction(transaction_app_id(self.query_id, QUARANTINE), batch_id),
                replace=False,
            )
        self.records.write_counts(self.generation, batch_id, BatchCounts(query_id=self.query_id, **counted))

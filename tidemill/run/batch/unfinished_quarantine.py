"""The rest of a batch that the main table of a feed has and the quarantine lacks, after a kill between the two.

The records are validated as those in the table were, by the schema and the rules that its commit carries, so each is in
one of the two tables, even if the code has changed. The function does not run.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidemill.connectors.feed import feed_of
from tidemill.errors import TerminalError
from tidemill.records.batch import BatchCounts
from tidemill.records.stream_records import StreamRecords
from tidemill.run.batch.counted import numbers
from tidemill.run.batch.quarantine import has_quarantined, quarantine, record_counts, refused_records
from tidemill.run.batch.validation_rules import ValidationRules, rules_of, with_rules
from tidemill.storage.commit_metadata import commit_metadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidemill.checkpoint import Tail
    from tidemill.definitions.stream import Stream


def pending_validation(
    stream: "Stream", records: StreamRecords, tail: "Tail", spark: "SparkSession"
) -> ValidationRules | None:
    """Return the rules by which the records of a batch to repeat were validated, if its main table has it.

    None where the main table does not have the batch, and where its quarantine came first.

    Args:
        tail: The end of its checkpoint, with a batch to repeat.

    Raises:
        TerminalError: The definition no longer reads the feed, so its refused records would be lost.
    """
    batch_id, query_id = tail.next_start.batch_id, tail.query_id
    table = None if query_id is None else records.sink_table(query_id)
    if query_id is None or table is None or not table.has(batch_id):
        return None
    commit = table.table.log.commits_of_batches(query_id, batch_id).get(batch_id)
    feed = feed_of(stream)
    if commit is None and feed is not None:  # the log's cleanup has removed it
        return rules_of(feed, spark)
    validation: ValidationRules | None = commit_metadata(commit).get("validation")
    planned = () if tail.latest_offset is None else tail.latest_offset.sources
    names = {source.key for source in planned if source.raw is not None}
    if validation is None or (feed is not None and names.issuperset(stream.sources)):
        return validation
    if has_quarantined(records, query_id, batch_id):
        return None
    raise TerminalError(
        f"its table has batch {batch_id}, a run was killed before the records that the batch refused were in "
        f"quarantine, and the definition no longer reads the source {', '.join(sorted(names))!r}.",
        stream=stream.name,
        fix=f"declare the source as it was, and run the stream once: tidemill run {stream.name}",
        code="unfinished-source-removed",
    )


def validating_as(stream: "Stream", validation: ValidationRules) -> "Stream":
    """Return a stream that validates the records of its feed in that way."""
    feed = feed_of(stream)
    feeds = {} if feed is None else dict.fromkeys(stream.sources, with_rules(feed, validation))
    return replace(stream, sources=feeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedWriter:
    """The foreachBatch function that writes the refused records of a batch: plain values only, as in BatchWriter.

    Attributes:
        epoch: The lease's epoch, checked before each write.
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
            refused = refused_records(rows)
            quarantine(refused, self.records, self.query_id, batch_id, generation=self.generation)
        self.records.add_counts(self.generation, batch_id, BatchCounts(query_id=self.query_id, **counted))

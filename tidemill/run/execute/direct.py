"""Queries in a mode of low latency: Spark itself writes the rows, without micro-batches of the stream.

Such a query has a checkpoint of its own, which begins where that of the stream ends. What it has committed is recorded
every few seconds as one batch of the stream: offsets, a row in its table of commits, and a line in the ledger. So a
later run continues in any mode. Without that the way back fails (measured on Spark 4.2): continuous processing writes
offsets without settings, asynchronous progress tracking leaves out batches, and an ordinary query starts from neither.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidemill.checkpoint import Tail, read_tail_or_empty
from tidemill.checkpoint.write import CheckpointWriter
from tidemill.connectors.connector import Reading, SourceContext
from tidemill.connectors.registry import connector_of, recognize
from tidemill.definitions.sink import CommitMetadata, Transaction, transaction_app_id
from tidemill.run.execute import modes, query
from tidemill.run.spark.classic import task_slots
from tidemill.sinks.external_sink import CommitTable
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from tidemill.checkpoint import SourceOffset
    from tidemill.definitions.options import Mode
    from tidemill.definitions.sink import Sink
    from tidemill.definitions.source import Source
    from tidemill.definitions.stream import Stream
    from tidemill.records.batch import BatchRecord
    from tidemill.records.lease import Lease
    from tidemill.records.stream_records import Snapshot
    from tidemill.run.execute.recorder import Recorder
    from tidemill.storage.store import Store
    from tidemill.target.target import Target

# How often what the query has committed is recorded; each time is a commit of the table and a line of the ledger.
_RECORD_SECONDS = 10.0
_FOLDER = "direct-"


@dataclass(slots=True)
class DirectQuery:
    """The query of a stream in a mode of low latency, and what an earlier one may have left.

    Attributes:
        snapshot: The records of the stream when the run began.
        recorder: Writes the ledger and the manifest.
        shows: Called with the lines of each batch that was recorded.
    """

    stream: "Stream"
    target: "Target"
    snapshot: "Snapshot"
    recorder: "Recorder"
    lease: "Lease"
    shows: "Callable[[Sequence[BatchRecord]], None]"
    _ended_at: str | None = field(init=False, default=None)
    _recorded: float = field(init=False, default_factory=time.monotonic)

    def writer(self, spark: "SparkSession", mode: "Mode", built: "query.Query") -> "DataStreamWriter":
        """Return the query, not started; it begins where the checkpoint of the stream ends.

        Raises:
            TerminalError: It has state, or more partitions than Spark has cores.
        """
        if built.operators:
            raise modes.refusal(mode, "its function keeps state between rows")
        offset = self._read
        if offset is None or offset.raw is None:
            raise ValueError("a stream without a committed batch begins with one")
        if mode in modes.HOLDS_CORES:
            self._check_cores(spark, mode, offset)
        self._clear()
        rows = connector_of(self._source).load_from(
            self._source, SourceContext(spark, self.target), offset.raw
        )
        output = query.output_of(self.stream, rows)
        return (
            self._sink.stream_writer(output, self._sink.connection(self.target))
            .queryName(str(self.stream.name))
            .outputMode(modes.OUTPUT_MODES.get(mode, "append"))
            .option("checkpointLocation", self._files.uri())
            .options(**modes.OPTIONS.get(mode, {}))
        )

    def take(self, progress: Sequence[Mapping[str, Any]]) -> None:
        """Take the progress of batches that have been written; their own log may have them later, or never."""
        # Spark compares offsets as strings, and would run a batch without rows for a blank.
        self._ended_at = json.dumps(progress[-1]["sources"][0]["endOffset"], separators=(",", ":"))

    def record_now_and_then(self) -> None:
        """Record what the query has committed, where some seconds have passed since the last time."""
        if time.monotonic() - self._recorded >= _RECORD_SECONDS:
            self.record()

    def record(self) -> None:
        """Record what the query has committed since the last time, as one batch of the stream.

        Each step is left out where a run that was killed has done it.
        """
        self.lease.check()
        seconds, self._recorded = time.monotonic() - self._recorded, time.monotonic()
        end, tail = self._committed, self._tail
        if end is None or tail.query_id is None or json.loads(end) == _value(tail.committed(self._name)):
            return
        writer, start = self.snapshot.writer(), tail.next_start
        if start.kind != "repeat_batch":
            writer.schedule_batch(tail, {self._name: end})
        batch, records = start.batch_id, self.snapshot.records
        table = records.sink_table(tail.query_id)
        if table is not None and not table.has(batch):
            metadata = CommitMetadata(
                batch_id=batch,
                fingerprint=self.recorder.generation.fingerprint or "",
                rows_read=self._rows(tail),
            )
            transaction = Transaction(transaction_app_id(tail.query_id), batch)
            CommitTable().record(table.table, transaction, metadata)
        writer.commit_batch(batch)
        progress = {
            "batchId": batch,
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "durationMs": {"triggerExecution": math.ceil(seconds * 1000)},
        }
        self.shows(self.recorder.take([progress]))

    def finish(self) -> None:
        """Record what the query has committed, and remove its checkpoint."""
        if self._left:
            self.record()
            self._clear()

    @property
    def _left(self) -> "list[Store]":
        """The checkpoints of such queries that are there: its own, and those of queries before a rewind."""
        control = self.snapshot.records.control
        return [control.below(name) for name in control.names() if name.startswith(_FOLDER)]

    def _clear(self) -> None:
        for checkpoint in self._left:
            CheckpointWriter(checkpoint).clear()

    @property
    def _name(self) -> str:
        return next(iter(self.stream.sources))

    @property
    def _source(self) -> "Source":
        return self.stream.sources[self._name]

    @property
    def _sink(self) -> "Sink":
        return self.stream.external_sinks[0]

    @property
    def _tail(self) -> Tail:
        return read_tail_or_empty(self.snapshot.checkpoint)

    @property
    def _read(self) -> "SourceOffset | None":
        """Where the checkpoint of the stream ends."""
        return self._tail.committed(self._name)

    @property
    def _files(self) -> "Store":
        """The checkpoint of the query: one for each query id, so that after a rewind nothing of it is taken."""
        return self.snapshot.records.control.below(f"{_FOLDER}{self._tail.query_id}")

    @property
    def _committed(self) -> str | None:
        """Where the query has come to; None where it has committed nothing."""
        if self._ended_at is not None:
            return self._ended_at
        entry = read_tail_or_empty(self._files).committed_offsets
        return None if entry is None else entry.sources[0].raw

    def _rows(self, before: Tail) -> int | None:
        end = self._tail.planned(self._name)
        reading = Reading(target=self.target, name=self._name, offset=before.committed(self._name))
        return None if end is None else connector_of(self._source).rows(self._source, reading, end)

    def _check_cores(self, spark: "SparkSession", mode: "Mode", offset: "SourceOffset") -> None:
        partitions, cores = recognize(offset).parts, task_slots(spark)
        if cores is not None and partitions > cores:
            raise modes.refusal(
                mode,
                f"{self._source.describe()} has {pluralize(partitions, 'partition')}, each of which holds a core, and "
                f"Spark has {cores}",
            )


def _value(offset: "SourceOffset | None") -> Any:
    return None if offset is None else offset.value

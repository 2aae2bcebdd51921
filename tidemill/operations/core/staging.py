"""A stream that is computed beside its live tables, and published in one commit per table."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Any

from tidemill.definitions.sink import transaction_app_id
from tidemill.errors import TerminalError
from tidemill.operations.core.steps import (
    Step,
    check_current,
    ensure_computed,
    exclusive_operation,
    execute_steps,
    holding_when_free,
    staging_missing,
    staging_records,
)
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.decision import decide
from tidemill.run.execute.progress import Live
from tidemill.run.execute.stream_run import StreamRun
from tidemill.sinks.shared_append import appending
from tidemill.text.names import QUARANTINE, sql_identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidemill.definitions.sink import TableSink
    from tidemill.definitions.stream import Stream
    from tidemill.records.lease import Lease
    from tidemill.records.operation import Operation
    from tidemill.run.execute.results import StreamResult
    from tidemill.run.spark.engine import Engine
    from tidemill.target.target import Target

_FEED = "delta.enableChangeDataFeed"


@dataclass(frozen=True, slots=True)
class Staging(ABC):
    """An operation that computes a stream in a staging folder and then publishes it.

    Attributes:
        target: The target, whose sources are read.
        own_checkpoint: Whether its checkpoint is in the staging folder, because no run continues it.
        lease: The stream's lease while it publishes; None while it computes.
    """

    stream: "Stream"
    target: "Target"
    engine: "Engine"
    records: StreamRecords
    operation: "Operation"
    live: Live
    own_checkpoint: bool = False
    lease: "Lease | None" = None

    @property
    def staged(self) -> StreamRecords:
        """The records in the staging folder."""
        return staging_records(self.records, self.operation, own_checkpoint=self.own_checkpoint)

    def complete(self, *, publish: bool) -> "Operation":
        """Compute, then publish under the stream's lease if that is wanted; return the operation as it is then.

        Raises:
            LeaseHeldError: Another process has an operation of the stream, or a run holds it after an hour still.
            TerminalError: Another operation of the stream is unfinished, or has begun meanwhile.
        """
        with exclusive_operation(self.records, self.operation) as current:
            if current.ended_at is not None:
                return current
            operation = ensure_computed(self.records, current, self.compute)
            if not (publish or operation.publishing):
                return operation
            with holding_when_free(self.stream, self.records, operation.id) as lease:
                check_current(self.records, operation)
                if not operation.publishing:
                    check_not_shared(self.records)  # a stream may have begun to append meanwhile
                    self.catch_up()
                    return self._published(replace(operation, result=self.result()), lease)
                return self._published(operation, lease)

    def _published(self, operation: "Operation", lease: "Lease") -> "Operation":
        steps = replace(self, operation=operation, lease=lease).steps()
        self._check_staged(operation, steps[:-1])
        return execute_steps(self.records, operation, steps, lease)

    def _check_staged(self, operation: "Operation", reading: Sequence[Step]) -> None:
        """Check that the staging folder is there: without it, a step would replace rows by none.

        Args:
            reading: The steps that read it; the last one removes it.

        Raises:
            TerminalError: It is missing, and a step that reads it is not done.
        """
        if all(step.name in operation.done for step in reading) or self.staged.manifest() is not None:
            return
        folder = f"{self.records.lake.staging(self.stream.name)}/{operation.id}"
        raise staging_missing(self.records, operation, folder)

    @abstractmethod
    def compute(self) -> Mapping[str, Any]:
        """Compute beside the live stream, as often as it is called; return the result."""

    @abstractmethod
    def catch_up(self) -> None:
        """Compute what the live stream has read since; it cannot run now."""

    @abstractmethod
    def result(self) -> Mapping[str, Any]:
        """Return how the live tables will change, as JSON."""

    @abstractmethod
    def steps(self) -> tuple[Step, ...]:
        """Return the steps of the publication, in order."""

    def run(self, *, planned_only: bool = False) -> "StreamResult":
        """Run the stream until its sources have nothing more.

        Args:
            planned_only: Whether only the batch that is planned runs.

        Raises:
            TidemillError: The run fails, or another process holds the staging folder.
        """
        lease = self.staged.take_lease(self.operation.id)
        try:
            run = StreamRun(
                # Only tables are staged: what another sink is given cannot be taken back.
                decision=decide(
                    replace(self.stream, sinks=self.stream.tables), self.target, self.staged.snapshot()
                ),
                target=self.target,
                engine=self.engine,
                run_id=self.operation.id,
                lease=lease,
                canceled=Event(),
                first_batch=0,
                live=self.live,
            )
            return run.run(planned_only=planned_only)
        finally:
            self.live.leave(self.stream.name)
            lease.release()

    def remove(self) -> None:
        """Remove the staging folder."""
        lake, stream = self.records.lake, self.records.stream
        lake.store.delete_folder(f"{lake.staging(stream)}/{self.operation.id}")


def check_has_rows(stream: "Stream") -> None:
    """Check that a stream has a table that can be computed again.

    Raises:
        TerminalError: It has none.
    """
    if not stream.main.has_rows:
        raise TerminalError(
            "no sink of it is a table, so there are no rows to replace.",
            stream=stream.name,
            fix=f"give its sinks everything again: tidemill reset {stream.name} --from earliest --table keep",
            code="backfill-not-possible",
        )


def check_not_shared(records: StreamRecords) -> None:
    """Check that no other stream appends to the table of a stream, whose rows would be lost.

    Raises:
        TerminalError: One does.
    """
    if others := appending(records.control):
        names = ", ".join(map(str, others))
        raise TerminalError(
            f"its table has rows that {names} appended, and they would be lost.",
            stream=records.stream,
            fix="delete the rows that are wrong in the table; or let a stream of a new name fill its own table.",
            code="table-shared",
        )


def unstaged(stream: "Stream") -> list[str]:
    """Return the sentence that names the sinks that an operation leaves as they are; none without such sinks."""
    names = ", ".join(sink.name for sink in stream.external_sinks)
    return [f"Only tables are replaced: no rows are given to {names}."] if names else []


def operation_metadata(operation: "Operation", **fields: Any) -> str:
    """Return the `userMetadata` of a commit of an operation, as JSON."""
    return json.dumps({"tidemill": {"operation": operation.id, **fields}}, separators=(",", ":"))


def replace_table(
    spark: "SparkSession",
    sink: "TableSink | None",
    staged: StreamRecords,
    live: StreamRecords,
    commit: Mapping[str, str],
) -> None:
    """Replace the rows of a live table with those of a staged one, in one commit.

    Readers see the old rows or the new ones. Delta skips the commit where the table has its transaction already.

    Args:
        sink: The sink; None for the quarantine.
        staged: The records of the staged table.
        live: The records of the live table.
        commit: The options of the commit: its transaction and its `userMetadata`.
    """
    name = QUARANTINE if sink is None else sink.name
    path, before = live.table(name), live.table(name).open()
    if staged.table(name).open() is not None:
        rows = staged.table(name).read(spark)
    elif before is not None:  # nothing was refused, or written, this time
        rows = path.read(spark).limit(0)
    else:
        return
    change_feed = sink is not None and sink.change_feed
    if before is not None and change_feed and _FEED not in before.metadata().configuration:
        # Another kind of sink created it, and readers of a merge table read its change data feed.
        spark.sql(f"ALTER TABLE {path.sql} SET TBLPROPERTIES ('{_FEED}' = 'true')")
    partitions = [] if sink is None else list(sink.partition_by)
    writer = rows.write.format("delta").mode("overwrite").options(**commit)
    same_columns = before is not None and _columns(spark, live, name) == _columns_of(rows)
    if before is not None and same_columns and before.metadata().partition_columns == partitions:
        # With a condition Delta keeps the layout of the table.
        writer.option("replaceWhere", "true").option("partitionOverwriteMode", "static").save(path.uri)
        return
    if partitions:
        writer = writer.partitionBy(*partitions)
    writer.option("overwriteSchema", "true").save(path.uri)
    if clusters := () if sink is None else sink.cluster_by:
        columns = ", ".join(map(sql_identifier, clusters))
        spark.sql(f"ALTER TABLE {path.sql} CLUSTER BY ({columns})")


def copy_tables(spark: "SparkSession", stream: "Stream", records: StreamRecords, generation: int) -> None:
    """Copy the tables of a stream to tables of their own: `<stream>__generation_<N>`.

    Args:
        generation: The generation that wrote them.
    """
    for sink in stream.tables:
        if records.table(sink.name).open() is None:
            continue
        name = f"generation_{generation}"
        name = name if sink is stream.main else f"{sink.name}_{name}"
        rows = records.table(sink.name).read(spark)
        rows.write.format("delta").mode("overwrite").save(records.table(name).uri)


def commit_options(operation: "Operation", query_id: str, sink: str, batch: int) -> dict[str, str]:
    """Return the options of a write that stands for all batches up to one.

    Args:
        query_id: The query whose batches it stands for.
        batch: The last of the batches.
    """
    return {
        "txnAppId": transaction_app_id(query_id, sink),
        "txnVersion": str(batch),
        "userMetadata": operation_metadata(operation),
    }


def _columns(spark: "SparkSession", records: StreamRecords, name: str) -> list[tuple[str, str]]:
    return _columns_of(records.table(name).read(spark))


def _columns_of(rows: "DataFrame") -> list[tuple[str, str]]:
    return sorted(rows.dtypes)

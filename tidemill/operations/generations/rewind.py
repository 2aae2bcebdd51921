"""Rewind: a stream's tables and its offsets go back together, to one of its batches.

The steps, each of which can be repeated:
- `checkpoint`: a new generation's checkpoint is made from that of the active one, up to the batch.
- `tables`: each table is restored to its version after the batch, and marked with the new generation's identity.
- `quarantine`: the records that later batches refused are removed. Those that a replay moved into rows which are taken
  back are in it again.
- `manifest`: the new generation becomes the active one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tidemill.checkpoint import read_offset
from tidemill.checkpoint.verify import verify
from tidemill.checkpoint.write import CheckpointWriter, batches_to_copy, keeps_paths
from tidemill.connectors.registry import recognizer
from tidemill.definitions.sink import transaction_app_id
from tidemill.errors import TerminalError
from tidemill.operations.core.change import Change, began, never_run, refusal
from tidemill.operations.core.spec import Argument, OperationSpec
from tidemill.operations.core.staging import check_not_shared, operation_metadata
from tidemill.operations.core.steps import Step, execute_steps, existing_manifest, leased, session, unfinished
from tidemill.operations.generations.table_versions import (
    batch_at,
    continued,
    generation_of_batch,
    missing_files,
    version_after,
    version_before_replays,
)
from tidemill.records.manifest import Manifest
from tidemill.records.newest_events import NewestEvents, with_batches
from tidemill.records.operation import Operation
from tidemill.records.stream_records import Snapshot, StreamRecords
from tidemill.storage.store import Store
from tidemill.text.durations import flag_time, now_iso
from tidemill.text.names import MAIN_SINK, QUARANTINE
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checkpoint.positions import Recognizer
    from tidemill.definitions.stream import Stream
    from tidemill.records.batch import BatchRecord
    from tidemill.records.lease import Lease
    from tidemill.run.spark.engine import Engine
    from tidemill.target.target import Target

KIND = "rewind"
STEPS = ("checkpoint", "tables", "quarantine", "manifest")
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def rewind(
    stream: "Stream",
    target: "Target",
    engine: "Engine",
    *,
    to_batch: int | None = None,
    to_time: datetime | None = None,
    readers: "Sequence[Stream]" = (),
    dry_run: bool = False,
) -> Change:
    """Take a stream back to one of its batches: its tables and its offsets together.

    The next run continues after that batch, in a new generation, with the code as it is then. The generation before
    stays until it is pruned.

    Args:
        engine: Where Spark sessions come from; not asked for a plan.
        to_batch: The batch, of the active generation or of one that it continues.
        to_time: Instead of a batch: the last batch that the table had at this moment, with a time zone.

    Raises:
        TerminalError: Offsets, state, versions or files of that batch are missing, or there is nothing to rewind.
        LeaseHeldError: A run holds the stream's lease.
    """
    records = StreamRecords(target.lake, stream.name)
    with leased(records, KIND, dry_run=dry_run) as lease:
        snapshot = records.snapshot()
        manifest = snapshot.manifest
        if manifest is None:
            raise never_run(stream, "it has never run, so there is nothing to rewind.")
        check_not_shared(records)
        arguments = REWIND.recorded(to_batch=to_batch, to_time=to_time)
        operation = unfinished(records, KIND, arguments)
        if operation is None or not operation.publishing:
            planning = _Planning(stream, snapshot, manifest)
            batch = planning.batch(to_batch, to_time)
            operation = REWIND.begin(stream.name, arguments, planning.decided(batch))
        change = _change(stream, operation, readers)
        if lease is not None:
            execute_steps(records, operation, _Rewinding(records, engine, lease, operation).steps(), lease)
        return change


@dataclass(frozen=True, slots=True)
class _Planning:
    """A rewind that is planned."""

    stream: "Stream"
    snapshot: Snapshot
    manifest: Manifest

    def batch(self, to_batch: int | None, to_time: datetime | None) -> int:
        """Return the batch to go back to."""
        table = self.snapshot.records.table()
        batch = to_batch
        if to_time is not None:
            batch = batch_at(table, self.manifest, to_time)
            if batch is None:
                raise refusal(
                    self.stream,
                    f"the log of its table shows no batch that was committed by {to_time.isoformat()}.",
                    "name a later time; tidemill checkpoint history lists the batches.",
                    code="batch-not-known",
                )
        copied = [
            number
            for number in batches_to_copy(self.snapshot.checkpoint)
            if number >= generation_of_batch(self.manifest, number).first_batch - 1
        ]
        if batch is None or batch not in copied:
            there = f"{copied[0]} to {copied[-1]}" if copied else "none"
            raise refusal(
                self.stream,
                f"the offsets of batch {batch} are not in its checkpoint, which has batches {there} (Spark keeps the "
                "last hundred, and none is older than a rebuild).",
                f"name one of them; or rebuild the stream: tidemill rebuild {self.stream.name}",
                code="batch-not-known",
            )
        if batch == copied[-1] and self.snapshot.tail.next_start.kind != "repeat_batch":
            raise refusal(
                self.stream,
                f"batch {batch} is its newest, so there is nothing to take back.",
                "name an earlier batch.",
                code="nothing-to-change",
            )
        return batch

    def decided(self, batch: int) -> dict[str, Any]:
        """Return what the operation needs to know, as JSON."""
        generation = generation_of_batch(self.manifest, batch)
        records = self.snapshot.records
        versions = {}
        for sink in self.stream.tables:
            table = records.table(sink.name)
            version = version_after(table, generation, sink.name, batch)
            missing = None if version is None else missing_files(table, version)
            if version is None or missing is None:
                raise self._missing(
                    f"the version of {table.name} after batch {batch} is no longer in the table's log"
                )
            if missing:
                raise self._missing(
                    f"{pluralize(len(missing), 'file')} of version {version} of {table.name} are missing, such as "
                    f"{missing[0]}: VACUUM removed them"
                )
            versions[sink.name] = version
        self._check_state(batch)
        quarantine = version_before_replays(records, versions[MAIN_SINK])
        if quarantine is not None and missing_files(records.table(QUARANTINE), quarantine) != []:
            raise self._missing(
                f"version {quarantine} of {records.table(QUARANTINE).name} can no longer be restored, and a later "
                "replay moved records out of it"
            )
        heads = {sink: records.table(sink).log.latest_version() for sink in versions}
        return {
            "batch": batch,
            "newest_batch": self.snapshot.last_commit,
            "generation": self.snapshot.generation + 1,
            "query_id": str(uuid4()),
            "versions": versions,
            "heads": heads,
            "quarantine": quarantine,
        }

    def _check_state(self, batch: int) -> None:
        """Check that a copy of the checkpoint up to the batch can be continued: a trial copy is verified."""
        checkpoint = self.snapshot.checkpoint
        if keeps_paths(checkpoint):
            raise self._missing(
                "its state has the paths of its own checkpoint (transformWithState), and cannot be copied"
            )
        lake = self.snapshot.records.lake
        trial = lake.store.below(f"{lake.staging(self.stream.name)}/trial-{uuid4().hex[:8]}")
        recognize = recognizer(self.snapshot.sources)
        writer = CheckpointWriter(trial)
        try:
            writer.copy_until(checkpoint, batch, str(uuid4()), _logs(checkpoint, batch, recognize))
            findings = verify(trial, level="quick", recognize=recognize).findings
            errors = [finding for finding in findings if finding.severity == "error"]
        finally:
            writer.clear()
        if errors:
            raise self._missing(f"its checkpoint cannot be continued after batch {batch}: {errors[0].what}")

    def _missing(self, what: str) -> TerminalError:
        return refusal(
            self.stream,
            f"{what}.",
            f"name a later batch; or rebuild the stream from its sources: tidemill rebuild {self.stream.name}",
            code="rewind-not-possible",
        )


def _logs(checkpoint: Store, batch: int, recognize: "Recognizer") -> dict[str, int]:
    """Return the last entry in a batch of each source that keeps a log."""
    sources = read_offset(checkpoint, batch).sources
    return {
        source.key: entry for source in sources if (entry := recognize(source).last_log_entry) is not None
    }


def _change(stream: "Stream", operation: Operation, readers: "Sequence[Stream]") -> Change:
    decided = operation.decided
    batch, newest = decided["batch"], decided["newest_batch"]
    effects = [
        f"The table {stream.name.stream if sink == 'main' else f'{stream.name.stream}__{sink}'} is restored to version "
        f"{version}; its newest is {decided['heads'][sink]}."
        for sink, version in decided["versions"].items()
    ]
    effects.append(
        f"Generation {decided['generation']} continues after batch {batch}: what {pluralize(newest - batch, 'batch')} "
        "had read is read again, with the code as it is then."
    )
    if names := ", ".join(sink.name for sink in stream.external_sinks):
        effects.append(f"The rows of these batches are given to {names} again, with another query id.")
    effects += [
        f"{reader.name} reads the table: if it has read rows that are taken back, its next run names the batch to "
        "rewind it to."
        for reader in readers
        if stream.name in reader.upstreams
    ]
    effects += began(operation)
    return Change(
        stream=stream.name,
        what=f"The stream goes back from batch {newest} to batch {batch}.",
        effects=tuple(effects),
    )


@dataclass(frozen=True, slots=True)
class _Rewinding:
    """The steps of a rewind."""

    records: StreamRecords
    engine: "Engine"
    lease: "Lease"
    operation: Operation

    def steps(self) -> tuple[Step, ...]:
        """Return the steps, in the order of `STEPS`."""
        runs = (self._copy_checkpoint, self._restore_tables, self._empty_quarantine, self._switch)
        return tuple(map(Step, STEPS, runs))

    @property
    def _decided(self) -> Mapping[str, Any]:
        return self.operation.decided

    def _copy_checkpoint(self) -> None:
        number = self._decided["generation"]
        before, now = self.records.checkpoint(number - 1), self.records.checkpoint(number)
        batch = self._decided["batch"]
        logs = _logs(before, batch, recognizer(self.records.snapshot().sources))
        CheckpointWriter(now).copy_until(before, batch, self._decided["query_id"], logs)

    def _restore_tables(self) -> None:
        with session(self.engine, self.lease) as spark:
            for sink, version in self._decided["versions"].items():
                path = self.records.table(sink)
                app_id = transaction_app_id(self._decided["query_id"], sink)
                table = path.open()
                if table is None or table.transaction_version(app_id) is not None:
                    continue  # restored and marked before a kill
                if version != path.log.latest_version():
                    spark.conf.set(_USER_METADATA, operation_metadata(self.operation, restores=version))
                    spark.sql(f"RESTORE TABLE {path.sql} TO VERSION AS OF {int(version)}").collect()
                # The checkpoint has batches up to this one, and a table must have what its checkpoint has.
                spark.conf.set(_USER_METADATA, operation_metadata(self.operation))
                empty = path.read(spark).limit(0)
                writer = empty.write.format("delta").mode("append").option("txnAppId", app_id)
                writer.option("txnVersion", str(self._decided["batch"])).save(path.uri)

    def _empty_quarantine(self) -> None:
        path = self.records.table(QUARANTINE)
        if path.open() is None:
            return
        with session(self.engine, self.lease) as spark:
            spark.conf.set(_USER_METADATA, operation_metadata(self.operation))
            version = self._decided["quarantine"]
            if version is not None:
                spark.sql(f"RESTORE TABLE {path.sql} TO VERSION AS OF {int(version)}").collect()
            later = f"batch_id > {int(self._decided['batch'])}"
            numbers = ", ".join(str(int(number)) for number in continued(existing_manifest(self.records)))
            statement = f"DELETE FROM {path.sql} WHERE generation IN ({numbers}) AND {later}"  # noqa: S608
            spark.sql(statement).collect()

    def _switch(self) -> None:
        manifest = existing_manifest(self.records)
        if manifest.active.number != self._decided["generation"]:
            newest = _newest_events(self.records, manifest, self._decided["batch"])
            self.records.write_manifest(_rewound(manifest, self._decided, newest))


def _newest_events(records: StreamRecords, manifest: Manifest, batch: int) -> NewestEvents:
    """Return the newest events up to a batch: those of later batches would make rows late that are read again."""
    by_number = {generation.number: generation for generation in manifest.generations}
    lines = list(records.ledger.lines())
    kept: list[BatchRecord] = []
    for number in continued(manifest):
        kept += [line for line in lines if line.generation == number and line.batch_id <= batch]
        batch = min(batch, by_number[number].first_batch - 1)
    return with_batches({}, sorted(kept, key=lambda line: line.batch_id))


def _rewound(manifest: Manifest, decided: Mapping[str, Any], newest_events: NewestEvents) -> Manifest:
    active = manifest.active
    sources = {
        # What was read last is known again when the next run ends.
        name: replace(record, read_version=None, read_commit=None)
        for name, record in active.sources.items()
    }
    return manifest.with_generation(
        replace(
            active.at(decided["batch"]),
            number=decided["generation"],
            began_at=now_iso(),
            why=f"rewind to batch {decided['batch']}",
            sources=sources,
            query_id=decided["query_id"],
            ledger_batch=decided["batch"],
            newest_events=newest_events,
            continues=active.number,
            first_batch=decided["batch"] + 1,
        )
    )


REWIND = OperationSpec(
    kind=KIND,
    summary="Take the tables and the offsets of a stream back to an earlier batch.",
    description="The next run reads again what later batches had read, in a new generation. The old checkpoint is kept "
    "until it is pruned.",
    apply=rewind,
    arguments=(
        Argument(
            name="to_batch",
            help="The last batch to keep. tidemill checkpoint history lists the batches.",
            kind=int,
            metavar="N",
            minimum=0,
        ),
        Argument(
            name="to_time",
            help="Keep the batches that the table had at this time: 2026-01-31T12:00, in UTC unless it has an offset.",
            metavar="TIME",
            read=flag_time,
        ),
    ),
    one_of=("to_batch", "to_time"),
    one_stream=True,
    steps=STEPS,
)

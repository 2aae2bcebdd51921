"""Adopt: a stream continues the checkpoint and the table of a query that plain Spark ran.

The checkpoint is copied, and its offsets get the names of the stream's sources (offset log version 2); its query id
stays, and with it the identity of its transactions in the table. The steps, each of which can be repeated:
- `checkpoint`: the checkpoint is copied.
- `table`: the table is moved to the location of the stream's table.
- `manifest`: the position of the checks and the manifest are written.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.checkpoint import Tail, has_checkpoint, read_tail
from tidemill.checkpoint.verify import verify
from tidemill.checkpoint.write import CheckpointWriter, keeps_paths
from tidemill.connectors.registry import recognize
from tidemill.errors import TerminalError
from tidemill.operations.core.change import Change, began
from tidemill.operations.core.spec import Argument, OperationSpec
from tidemill.operations.core.steps import Step, execute_steps, leased, unfinished
from tidemill.operations.edits.source_match import names_of_sources
from tidemill.records.check_state import Checked, Position
from tidemill.records.ledger_line import plain_offsets
from tidemill.records.manifest import Generation, Manifest
from tidemill.records.stream_records import SinkTable, StreamRecords
from tidemill.run.execute.query import pinned_confs
from tidemill.storage.local_store import LocalStore
from tidemill.storage.side_by_side import for_each
from tidemill.storage.store import Store
from tidemill.storage.table_ref import TableRef

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.target.target import Target

KIND = "adopt"
STEPS = ("checkpoint", "table", "manifest")
_FIRST = 1


def adopt(
    stream: "Stream",
    target: "Target",
    checkpoint: str | Path,
    *,
    table: str | Path | None = None,
    dry_run: bool = False,
) -> Change:
    """Continue a checkpoint and a table that plain Spark made, without a replay.

    An adoption that was killed is finished by the same call; until then no run of the stream starts.

    Args:
        stream: A stream that has never run, declared as the query was.
        checkpoint: The query's checkpoint, a folder or an address on S3; it is copied.
        table: The query's table, a folder or an address on S3. Between folders it is moved, and else copied. None where
            it is at the stream's location already.

    Raises:
        TerminalError: The stream has run, the checkpoint is not sound or has an unfinished batch, its sources are not
            those of the stream, or the table was not written by the query.
        LeaseHeldError: A run holds the stream's lease.
        ConfigurationError: The target does not say how S3 is reached.
    """
    records = StreamRecords(target.lake, stream.name)
    with leased(records, KIND, dry_run=dry_run) as lease:
        lake = target.lake
        files = lake.files_at(str(checkpoint))
        there = None if table is None else lake.table_at(str(table))
        adopting = _Adopting(stream, target, records, files, there)
        arguments = ADOPT.recorded(checkpoint=files.uri(), table=there and there.uri)
        operation = unfinished(records, KIND, arguments)
        if operation is None or not operation.publishing:
            operation = ADOPT.begin(stream.name, arguments, adopting.decided())
        if lease is not None:
            execute_steps(records, operation, adopting.steps(), lease)
        decided = operation.decided
        return Change(
            stream=stream.name, what=decided["what"], effects=(*decided["effects"], *began(operation))
        )


@dataclass(frozen=True, slots=True)
class _Adopting:
    stream: "Stream"
    target: "Target"
    records: StreamRecords
    checkpoint: Store
    table: TableRef | None

    def steps(self) -> tuple[Step, ...]:
        """Return the steps, in the order of `STEPS`."""
        return tuple(map(Step, STEPS, (self._copy_checkpoint, self._move_table, self._write_records)))

    def decided(self) -> dict[str, Any]:
        """Check everything, and return what would be done, in sentences."""
        if self.records.manifest() is not None:
            raise self._refuse(
                "it has run already.", "declare a stream of a new name for the query.", code="stream-has-run"
            )
        tail = self._checked_tail()
        names = self._names(tail)
        table = self._checked_table(tail)
        renamed = [f"{position} is {name!r}" for position, name in names.items() if position != name]
        effects = [
            f"The checkpoint is copied to {self.records.checkpoint(_FIRST)}; the original stays.",
            f"The query id {tail.query_id} stays, and with it the identity of the batches in the table.",
        ]
        if renamed:
            effects.append(f"The sources get the names that they have in the stream: {', '.join(renamed)}.")
        if table.table.uri != self.records.table().uri:
            there, here = table.table, self.records.table()
            effects.append(
                f"The table is moved from {there} to {here}."
                if _is_moved(there, here)
                else f"The table is copied from {there} to {here}; the original stays."
            )
        effects.append("The query must not be started again: it and the stream would write the same batches.")
        what = f"The stream continues after batch {_last(tail)} of the query in {self.checkpoint}."
        return {"what": what, "effects": effects}

    def _copy_checkpoint(self) -> None:
        names = self._names(self._checked_tail())
        CheckpointWriter(self.records.checkpoint(_FIRST)).copy_named(self.checkpoint, names)

    def _move_table(self) -> None:
        source, table = self.table, self.records.table()
        if source is None or source.uri == table.uri or not source.exists():  # moved before a kill
            return
        if _is_moved(source, table):
            to = Path(table.uri)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(source.uri, to)
            return
        files = [entry.key.removeprefix(f"{source.key}/") for entry in source.store.walk(source.key)]
        # The log comes last, and its versions in their order: a copy that is interrupted is no table, or an older one.
        of_log = {name for name in files if name.startswith(f"{source.log.name}/")}

        def copied(name: str) -> None:
            source.store.copy(f"{source.key}/{name}", f"{table.key}/{name}", table.store)

        for_each(table.store, copied, [name for name in files if name not in of_log])
        for name in sorted(of_log):
            copied(name)

    def _checked_tail(self) -> Tail:
        here = self.records.checkpoint(_FIRST)
        verdict = verify(self.checkpoint, level="full", recognize=recognize)
        errors = [finding for finding in verdict.findings if finding.severity == "error"]
        if errors:
            raise self._refuse(
                f"the checkpoint {self.checkpoint} is not sound: {errors[0].what} ({errors[0].where}).",
                errors[0].fix,
                code="checkpoint-not-sound",
            )
        tail = read_tail(self.checkpoint)
        if has_checkpoint(here) and read_tail(here).query_id != tail.query_id:
            raise self._refuse(
                f"its checkpoint {here} exists and is of another query.",
                "move the folder away.",
                code="files-exist",
            )
        if tail.next_start.kind in ("first_run", "repeat_batch"):
            raise self._refuse(
                f"batch {tail.next_start.batch_id} of the query is not committed.",
                "let the query end properly: start it once more with the trigger availableNow.",
                code="batch-not-finished",
            )
        if keeps_paths(self.checkpoint):
            raise self._refuse(
                "the query uses transformWithState, whose state has the paths of its own checkpoint.",
                "rebuild the table with a stream of its own.",
                code="adopt-not-possible",
            )
        return tail

    def _names(self, tail: Tail) -> Mapping[str, str]:
        """Return the names of the stream's sources by those (or the positions) in the checkpoint."""
        if tail.committed_offsets is None:
            raise self._refuse(
                "its last commit has no offsets.",
                "restore the checkpoint from a copy.",
                code="checkpoint-not-sound",
            )
        return names_of_sources(self.stream, self.target, self.checkpoint, tail.committed_offsets)

    def _checked_table(self, tail: Tail) -> SinkTable:
        """Return the table, which has every batch of the checkpoint and no other."""
        main = self.stream.main
        if len(self.stream.sinks) != 1 or not (main.native and main.only_appends):
            raise self._refuse(
                "only a stream with one DeltaAppend can adopt a table: others have columns that plain Spark does not "
                "write, or tables that lack the batches so far.",
                "declare sink=DeltaAppend(...).",
                code="adopt-not-possible",
            )
        moved = self.table is None or not self.table.exists()  # before a kill, or by the user
        path = self.records.table() if moved or self.table is None else self.table
        table = path.open()
        if table is None:
            raise self._refuse(
                f"there is no Delta table in {path}.", "name it with --table DIR.", code="table-missing"
            )
        if path.uri != self.records.table().uri and self.records.table().exists():
            raise self._refuse(
                f"its table {self.records.table()} exists already.", "move it away.", code="files-exist"
            )
        newest = table.transaction_version(tail.query_id) if tail.query_id else None
        if newest != _last(tail):
            has = "no batch of it" if newest is None else f"batch {newest} as its newest"
            raise self._refuse(
                f"the checkpoint ends at batch {_last(tail)} of query {tail.query_id}, and the table {path} has {has}: "
                "it is another table, an older one, or was written by a function of foreachBatch.",
                "name the table that the query writes with format('delta').",
                code="checkpoint-of-another-query",
            )
        partitions = table.metadata().partition_columns
        if list(main.partition_by) != partitions:
            raise self._refuse(
                f"the table {path} is partitioned by {partitions}, and the sink by "
                f"{list(main.partition_by)}.",
                f"declare DeltaAppend(partition_by={partitions}).",
                code="partitions-differ",
            )
        return SinkTable(path, str(table.metadata().id), table.version(), newest_batch=_last(tail))

    def _write_records(self) -> None:
        tail = read_tail(self.checkpoint)
        table = self.records.sink_table(tail.query_id)
        entry = read_tail(self.records.checkpoint(_FIRST)).committed_offsets
        if table is None or tail.query_id is None or entry is None:
            raise self._refuse(
                "its table or its checkpoint disappeared.", "run the command again.", code="changed-meanwhile"
            )
        last = _last(tail)
        generation = Generation(
            number=_FIRST,
            why=f"adopted from {self.checkpoint}",
            query_id=tail.query_id,
            confs=pinned_confs(entry.conf),
            sinks={self.stream.main.name: self.stream.main.identity},
            external_sinks={},
            output_mode=self.stream.query.output_mode,
            table_id=table.table_id,
            ledger_batch=last,
            first_batch=last + 1,
        )
        # The ledger has no line of the query's batches: what comes after them is compared.
        position = Position(
            generation=_FIRST,
            query_id=tail.query_id,
            batch=last,
            versions={self.stream.main.name: table.version},
            end_offsets=plain_offsets(entry),
        )
        self.records.write_checked(Checked(position=position))
        self.records.write_manifest(Manifest(generations=(generation,)))

    def _refuse(self, what: str, fix: str, *, code: str) -> TerminalError:
        return TerminalError(what, stream=self.stream.name, fix=fix, code=code)


def _is_moved(there: TableRef, here: TableRef) -> bool:
    """Return whether a table is moved: both are folders of a file system."""
    return isinstance(there.store, LocalStore) and isinstance(here.store, LocalStore)


def _last(tail: Tail) -> int:
    return -1 if tail.latest_commit is None else tail.latest_commit.batch_id


ADOPT = OperationSpec(
    kind=KIND,
    summary="Continue a checkpoint and a table of a query of plain Spark, without reading anything again.",
    apply=adopt,
    arguments=(
        Argument(
            name="checkpoint",
            help="The checkpoint of the query, a folder or s3://..., which is copied.",
            metavar="DIR",
            required=True,
        ),
        Argument(
            name="table",
            help="The table of the query, a folder or s3://.... Leave it out if the table is already in place.",
            metavar="DIR",
        ),
    ),
    one_stream=True,
    steps=STEPS,
)

"""Rebuild: a stream is computed again from its sources while its old tables serve, and then published.

A new generation reads the sources from their beginning into staging tables. Its checkpoint is in the lake from the
start, where it stays. Under the live stream's lease, what arrived in the meantime is read as well. The steps of the
publication, each of which can be repeated:
- `old`: a copy of the old tables is written, if it is wanted.
- `tables`: each live table gets the new rows in one commit, which stands for all batches of the new generation.
- `ledger`: the lines of the new generation become those of the stream.
- `manifest`: the new generation becomes the active one.
- `staging`: the staging folder is removed.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tidemill.catalog.sources import located
from tidemill.checkpoint import CheckpointFormatError
from tidemill.checkpoint.write import CheckpointWriter
from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.code_version import code_version
from tidemill.errors import TerminalError, TidemillError
from tidemill.operations.core.change import Change, began, never_run, refusing_readers
from tidemill.operations.core.spec import ALLOW_MISSING, OperationSpec, flag
from tidemill.operations.core.staging import (
    Staging,
    check_has_rows,
    check_not_shared,
    commit_options,
    copy_tables,
    replace_table,
    unstaged,
)
from tidemill.operations.core.steps import Step, session, unfinished
from tidemill.operations.replay.range_origins import missing_in_sources
from tidemill.records.manifest import Generation, Manifest
from tidemill.records.operation import Operation
from tidemill.records.stream_records import StreamRecords
from tidemill.run.execute.progress import Live
from tidemill.text.names import QUARANTINE
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemill.definitions.stream import Stream
    from tidemill.run.spark.engine import Engine
    from tidemill.target.target import Target

KIND = "rebuild"
STEPS = ("old", "tables", "ledger", "manifest", "staging")


def rebuild(
    stream: "Stream",
    target: "Target",
    engine: "Engine",
    *,
    keep_old: bool = False,
    allow_missing: bool = False,
    readers: "Sequence[Stream]" = (),
    live: Live | None = None,
    dry_run: bool = False,
    publish: bool = True,
) -> Change:
    """Compute a stream again from the beginning of its sources, and replace its tables in one commit each.

    The old tables serve readers, and the live stream may run, until the new ones are complete.

    Args:
        stream: The stream, with the code as it is now.
        engine: Where Spark sessions come from; not asked for a plan.
        keep_old: Whether the old tables are kept as copies.
        allow_missing: Whether to continue where the sources no longer have everything that the stream has read.
        publish: Whether the tables change; otherwise they are computed beside the old ones, and the same call with
            `publish` continues.

    Raises:
        TerminalError: It has never run, or its sources no longer have everything.
        LeaseHeldError: A run, or another process with the same operation, holds the stream.
    """
    check_has_rows(stream)
    records = StreamRecords(target.lake, stream.name)
    check_not_shared(records)
    manifest = records.manifest()
    if manifest is None:
        raise never_run(stream, "it has never run, so there is nothing to rebuild.")
    arguments = REBUILD.recorded(keep_old=keep_old, allow_missing=allow_missing)
    operation = unfinished(records, KIND, arguments)
    current = {"generation": manifest.active.number + 1, "code_version": code_version(stream)}
    if operation is None or not operation.continues(current):
        missing = _missing(stream, target, records, manifest)
        if missing and not (allow_missing or dry_run):
            raise TerminalError(
                f"its sources no longer have everything that it has read: {' '.join(missing)}",
                stream=stream.name,
                fix=f"tidemill rebuild {stream.name} --allow-missing, and the rows that came from it are missing from "
                "the new table.",
                code="sources-incomplete",
            )
        decided = current | {"missing": list(missing), "old_rows": _rows(records)}
        operation = REBUILD.begin(stream.name, arguments, decided)
    if not dry_run:
        staging = _Rebuilding(stream, target, engine, records, operation, live or Live())
        operation = staging.complete(publish=publish)
    return _change(stream, operation, readers)


def _missing(
    stream: "Stream", target: "Target", records: StreamRecords, manifest: Manifest
) -> tuple[str, ...]:
    """Return what the sources no longer have, a sentence each; a damaged checkpoint is no reason not to rebuild."""
    try:
        snapshot = records.snapshot()
    except (TidemillError, CheckpointFormatError) as error:
        return (f"Its checkpoint cannot be read ({error}), so it is not known what is missing.",)
    if snapshot.tail.query_id is None and manifest.active.query_id is not None:
        return (f"Its checkpoint {snapshot.checkpoint} is missing, and with it what was read.",)
    return missing_in_sources(located(stream, snapshot.sources), target, snapshot)


def _rows(records: StreamRecords) -> int | None:
    table = records.table().open()
    return None if table is None else table.count()


def _change(stream: "Stream", operation: Operation, readers: "Sequence[Stream]") -> Change:
    decided = operation.decided
    rows = "" if decided["old_rows"] is None else f" ({decided['old_rows']:,} rows now)"
    effects = [
        f"Generation {decided['generation']} reads the sources from their beginning into a staging table.",
        f"The table{rows} is replaced in one commit; until then readers see the old rows, and the stream may run.",
        *unstaged(stream),
        *decided["missing"],
    ]
    if operation.arguments["keep_old"]:
        effects.append(f"The old rows stay in {stream.name.stream}__generation_{decided['generation'] - 1}.")
    effects += refusing_readers(stream, readers, again="Rebuild")
    effects += began(operation)
    outcome = ""
    if operation.result:
        verb = "has" if operation.ended_at else "would have"
        before, after = (pluralize(operation.result[f"rows_{when}"], "row") for when in ("before", "after"))
        outcome = f"The table had {before} and {verb} {after}."
    return Change(
        stream=stream.name,
        what="The stream is computed again from its sources.",
        effects=tuple(effects),
        outcome=outcome,
    )


@dataclass(frozen=True, slots=True)
class _Rebuilding(Staging):
    """A rebuild that is carried out."""

    def steps(self) -> tuple[Step, ...]:
        """Return the steps, in the order of `STEPS`."""
        runs = (
            self._keep_old,
            self._replace_tables,
            self._take_ledger,
            self._switch,
            self.remove,
        )
        return tuple(map(Step, STEPS, runs))

    def compute(self) -> dict[str, Any]:
        """Read the sources from their beginning, and return the numbers of rows."""
        self._prepare()
        self.run()
        return self.result()

    def catch_up(self) -> None:
        """Read what arrived in the meantime."""
        self.run()

    def result(self) -> dict[str, Any]:
        """Return the numbers of rows before and after, and the fingerprint of the code."""
        manifest = self.staged.manifest()
        fingerprint = None if manifest is None else manifest.active.fingerprint
        rows = {"rows_before": _rows(self.records) or 0, "rows_after": _rows(self.staged) or 0}
        return rows if fingerprint is None else rows | {"code": fingerprint}

    def _prepare(self) -> None:
        """Write the manifest of the new generation, which its first run continues."""
        staged = self.staged
        if staged.manifest() is not None:
            return
        number = self.operation.decided["generation"]
        # What an operation that was given up has left there.
        CheckpointWriter(self.records.checkpoint(number)).clear()
        live = self.records.manifest()
        firsts = {} if live is None else live.active.sources
        generation = Generation(
            number=number,
            why=KIND,
            # A source that begins with new rows begins where it did.
            sources={
                name: SourceRecord(first_version=record.first_version) for name, record in firsts.items()
            },
        )
        staged.write_manifest(Manifest(generations=(generation,)))

    def _keep_old(self) -> None:
        if not self.operation.arguments["keep_old"]:
            return
        generation = self.operation.decided["generation"] - 1
        with session(self.engine, self.lease) as spark:
            copy_tables(spark, self.stream, self.records, generation)

    def _replace_tables(self) -> None:
        staged = self.staged.snapshot()
        query_id = staged.tail.query_id
        if query_id is None:
            raise TerminalError(
                f"its staged checkpoint {staged.checkpoint} is missing.",
                stream=self.stream.name,
                fix="restore the folder from a backup.",
                code="staging-missing",
            )
        with session(self.engine, self.lease) as spark:
            for sink in (*self.stream.tables[:-1], None, self.stream.main):
                name = QUARANTINE if sink is None else sink.name
                commit = commit_options(self.operation, query_id, name, staged.last_commit)
                replace_table(spark, sink, self.staged, self.records, commit)

    def _take_ledger(self) -> None:
        self.records.ledger.copy_from(self.staged.ledger)

    def _switch(self) -> None:
        manifest, staged = self.records.manifest(), self.staged.manifest()
        if manifest is None or staged is None or manifest.active.number == staged.active.number:
            return
        table = self.records.sink_table(None)
        generation = replace(
            staged.active,
            external_sinks=manifest.active.external_sinks,  # which it does not write
            table_id=None if table is None else table.table_id,
            first_batch=self.staged.snapshot().last_commit + 1,
        )
        self.records.write_manifest(manifest.with_generation(generation))


REBUILD = OperationSpec(
    kind=KIND,
    summary="Compute streams again from the beginning of their sources, with the current code.",
    description="Readers use the old tables until the new ones are complete. Each table is then replaced in one "
    "commit. If a rebuild was killed, the same command finishes it.",
    apply=rebuild,
    arguments=(flag("keep_old", "Keep the old tables as copies, next to the new ones."), ALLOW_MISSING),
    replays=True,
    question="Compute it?",
    steps=STEPS,
)

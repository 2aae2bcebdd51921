"""What must hold before a stream runs: its manifest, checkpoint and table belong together."""

from shlex import quote
from typing import TYPE_CHECKING

from tidemill.checkpoint import has_checkpoint
from tidemill.checkpoint.verify import UNPINNED_PARTITIONS, verify
from tidemill.checkpoint.verify.findings import Finding
from tidemill.connectors.registry import recognizer
from tidemill.errors import CheckpointError, TerminalError
from tidemill.records.manifest import Generation, Manifest
from tidemill.records.operation import unfinished_error
from tidemill.records.stream_records import Snapshot

if TYPE_CHECKING:
    from tidemill.checkpoint.verify.verification import Verdict
    from tidemill.definitions.sink import Sink
    from tidemill.definitions.stream import Stream


def check(stream: "Stream", snapshot: Snapshot) -> None:
    """Check that a run can continue the stream.

    Raises:
        CheckpointError: The checkpoint is damaged, missing, or not the one that the table was written with.
        SchemaChangeError: A sink is not the one that its table was written by.
        TerminalError: The output mode of a stateful stream has changed, or a sink is new.
    """
    check_records(stream, snapshot)
    if snapshot.manifest is not None:
        _check_sinks(stream, snapshot, snapshot.manifest)
        _check_checkpoint(stream, snapshot)


def check_records(stream: "Stream", snapshot: Snapshot) -> None:
    """Check that manifest, checkpoint and tables belong together; raise as `check` does.

    Whether the checkpoint itself is sound is not checked here.
    """
    operation = snapshot.records.operation()
    if operation is not None and operation.publishing:  # it was killed between two steps
        raise unfinished_error(operation, stream.name)
    if snapshot.manifest is None:
        _check_untouched(stream, snapshot)
        return
    _check_query_id(stream, snapshot)
    _check_table(stream, snapshot, snapshot.manifest)
    for sink in stream.tables:
        if (recorded := snapshot.manifest.active.sinks.get(sink.name)) is not None:
            sink.check_recorded(snapshot.records.sink_context(sink.name), recorded)
    _check_output_mode(stream, snapshot, snapshot.manifest)


def _check_untouched(stream: "Stream", snapshot: Snapshot) -> None:
    """Refuse a table or a checkpoint without a manifest: a second start from zero would count twice."""
    if has_checkpoint(snapshot.folder):
        raise CheckpointError(
            f"its checkpoint {snapshot.checkpoint} exists and its control folder {snapshot.records.control} is "
            "missing.",
            stream=stream.name,
            fix="restore the control folder from a backup. To start over, move the stream's table, checkpoint "
            "and ledger away first.",
            code="control-folder-missing",
        )
    if snapshot.records.table().open() is not None:
        raise CheckpointError(
            f"its table {snapshot.records.table()} exists and the checkpoint that wrote it is missing: a first "
            "run would add every row again.",
            stream=stream.name,
            fix="restore the control and checkpoint folders from a backup, or move the table away.",
            code="records-missing",
        )


def _check_query_id(stream: "Stream", snapshot: Snapshot) -> None:
    known, tail = snapshot.query_id, snapshot.tail
    if known is not None and tail.query_id is None:
        raise CheckpointError(
            f"its checkpoint {snapshot.checkpoint} is missing or has no metadata file. The table has every "
            "batch that was committed.",
            stream=stream.name,
            fix="restore the folder from a backup; or compute the stream again from its sources: "
            f"tidemill rebuild {stream.name}",
            code="checkpoint-missing",
        )
    if known is not None and tail.query_id != known:
        raise CheckpointError(
            f"its checkpoint {snapshot.checkpoint} belongs to query {tail.query_id}, and the table was written "
            f"by query {known}: batches would be counted twice.",
            stream=stream.name,
            fix="restore the checkpoint that belongs to the table.",
            code="checkpoint-of-another-query",
        )


def _check_table(stream: "Stream", snapshot: Snapshot, manifest: Manifest) -> None:
    known = manifest.active.table_id
    table = snapshot.main_table if known is not None else None
    if known is None or (table is not None and table.table_id == known):
        return
    state = "is missing" if table is None else "is not the table that the checkpoint was written with"
    raise CheckpointError(
        f"its table {snapshot.records.table()} {state}; a run would continue after the rows that are gone.",
        stream=stream.name,
        lost="Rows that only the old table had are lost unless it is restored; the sources are unchanged.",
        fix=f"restore the table; or compute it again from the sources: tidemill rebuild {stream.name}",
        code="table-replaced",
    )


def new_sinks(stream: "Stream", active: Generation) -> "dict[str, Sink]":
    """Return the sinks by name that lack the rows of all batches before they were declared, tables first."""
    tables = [sink for sink in stream.tables if active.sinks and sink.name not in active.sinks]
    others: list[Sink] = []
    if (known := active.external_sinks) is not None:
        kept = (sink for sink in stream.external_sinks if sink.keeps_rows)
        others = [sink for sink in kept if known.get(sink.name) != sink.identity]
    return {sink.name: sink for sink in (*tables, *others)}


def _check_sinks(stream: "Stream", snapshot: Snapshot, manifest: Manifest) -> None:
    """Refuse a sink that would lack the rows of all batches before it was declared."""
    new = next(iter(new_sinks(stream, manifest.active).values()), None)
    if new is None or snapshot.tail.latest_commit is None:
        return
    accept = f"tidemill accept {stream.name} --new-sink {quote(new.name)}"
    fill = f"fill it with the rows that the stream's table has now: {accept} --fill"
    if new in stream.tables:
        what = f"its sink {new.name!r} is new, and its table"
        fix = (
            f"{fill}; or with all rows, computed again: tidemill rebuild {stream.name}; or let it begin with the next "
            f"batch: {accept}"
        )
    else:
        where = ", ".join(f"{name} {value}" for name, value in new.identity.items())
        what = f"its {new.kind} {new.name!r}{f' ({where})' if where else ''} is new, and"
        fix = f"{fill}; or let it begin with the next batch: {accept}"
    raise TerminalError(
        f"{what} would lack the rows of all batches up to {snapshot.last_commit}.",
        stream=stream.name,
        fix=fix,
        code="sink-new",
    )


def _check_output_mode(stream: "Stream", snapshot: Snapshot, manifest: Manifest) -> None:
    """Refuse another output mode over state, which Spark does not detect.

    What is in the state has been emitted in one mode and not in the other: a window that was open would never be.
    """
    before, now = manifest.active.output_mode, stream.query.output_mode
    if before is None or before == now or not snapshot.tail.stateful:
        return
    raise TerminalError(
        f"its output mode was {before!r} and is now {now!r}, and its state was kept for {before!r}: groups that do "
        "not change again would be missing in the table.",
        stream=stream.name,
        fix=f"declare output_mode={before!r} as before; or compute the stream again: tidemill rebuild {stream.name}",
        code="output-mode-changed",
    )


def quick_verdict(snapshot: Snapshot) -> "Verdict":
    """Verify what a start needs of a checkpoint, also against the main table."""
    return verify(
        snapshot.folder,
        level="quick",
        recognize=recognizer(snapshot.sources),
        sink_batch=snapshot.main_batch,
    )


def stops_a_run(finding: Finding) -> bool:
    """Return whether a run would not start with a finding."""
    return finding.severity == "error" and finding.code != UNPINNED_PARTITIONS


def _check_checkpoint(stream: "Stream", snapshot: Snapshot) -> None:
    if snapshot.tail.query_id is None:
        return
    for finding in quick_verdict(snapshot).findings:
        if stops_a_run(finding):
            raise CheckpointError(
                f"its checkpoint is not sound: {finding.what} ({finding.where}, {finding.code}).",
                stream=stream.name,
                fix=finding.fix,
                code="checkpoint-not-sound",
            )

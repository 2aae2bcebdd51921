"""What a run would do to a stream, decided without a JVM and without Dagster.

The decision is a value that can be printed and tested. It may err only towards running: a start that finds
nothing costs a moment, a start that is left out loses nothing but time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipelines.streaming import delta_log
from pipelines.streaming.backlog import Backlog, backlog_of
from pipelines.streaming.checkpoint import Tail
from pipelines.streaming.checkpoint.verify import UNPINNED_PARTITIONS, verify
from pipelines.streaming.errors import CheckpointError, TerminalError
from pipelines.streaming.records.manifest import Manifest, first_manifest, read_manifest
from pipelines.streaming.run.tail import tail_of
from pipelines.streaming.sources.feed import Feed
from pipelines.streaming.target import Target

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.streaming.stream import Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run would do to one stream.

    Attributes:
        stream: The stream.
        manifest: What its control folder says; a new one for a stream that has never run.
        checkpoint: The folder of the active checkpoint.
        tail: The end of the checkpoint.
        backlog: What waits, by the names of the streaming sources.
        reasons: Why it would run, in a few words each; empty when it is idle.
    """

    stream: "Stream"
    manifest: Manifest
    checkpoint: "Path"
    tail: Tail
    backlog: Mapping[str, Backlog] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.reasons


def bindings(stream: "Stream", target: Target) -> dict[str, str]:
    """Where the target binds the stream's feeds, by source name."""
    return {
        name: str(target.binding(source.name))
        for name, source in stream.sources.items()
        if isinstance(source, Feed)
    }


def plan(stream: "Stream", target: Target) -> Plan:
    """Looks at a stream and decides.

    Raises:
        CheckpointError: the checkpoint is damaged, gone, or not the one that the table was written with.
        TerminalError: the target binds a feed to another place than the checkpoint knows.
        TransientError: a source cannot be reached now.
        DataLossError: a source no longer has what comes next.
    """
    lake, name = target.lake, stream.name
    bound = bindings(stream, target)
    known = read_manifest(lake, name)
    manifest = known or first_manifest(bound)
    checkpoint = lake.checkpoint(name, manifest.active.number)
    if known is None:
        _check_untouched(stream, target)
    else:
        _check_bindings(stream, manifest, bound)
    tail = tail_of(checkpoint)
    if known is not None:
        _check_checkpoint(stream, manifest, checkpoint, tail)
        _check_table(stream, target, manifest, tail)
    waiting = {
        source_name: backlog_of(
            source,
            None if tail.latest_offset is None else tail.latest_offset.source(source_name),
            checkpoint=checkpoint,
            name=source_name,
            target=target,
        )
        for source_name, source in stream.sources.items()
        if source.streaming
    }
    return Plan(
        stream=stream,
        manifest=manifest,
        checkpoint=checkpoint,
        tail=tail,
        backlog=waiting,
        reasons=_reasons(manifest, tail, waiting, new=known is None or known.active.query_id is None),
    )


def _reasons(manifest: Manifest, tail: Tail, waiting: Mapping[str, Backlog], *, new: bool) -> tuple[str, ...]:
    reasons = [f"{backlog} in {source}" for source, backlog in waiting.items() if backlog]
    if new:
        reasons.append("it has never run")  # also without input: what reads it needs its table
    if tail.next_start.kind == "repeat_batch":
        reasons.append(f"batch {tail.next_start.batch_id} is to be repeated")
    if tail.next_start.kind == "no_data_batch":
        reasons.append(f"no-data batch {tail.next_start.batch_id} is pending")
    if tail.latest_commit is not None and tail.latest_commit.batch_id > manifest.active.ledger_batch:
        reasons.append("the ledger lacks lines")
    return tuple(reasons)


def _check_untouched(stream: "Stream", target: Target) -> None:
    """A stream without a manifest must have nothing yet: a second start from zero would count twice."""
    lake, name = target.lake, stream.name
    checkpoint = lake.checkpoint(name, 1)
    if checkpoint.exists():
        raise CheckpointError(
            f"there is a checkpoint, and its control folder {lake.control(name)} is gone.",
            stream=name,
            fix="Restore the control folder from a backup. To begin anew, move the table, the checkpoint "
            "and the ledger of the stream away first.",
        )
    if delta_log.open_table(lake.table(name)) is not None:
        raise CheckpointError(
            f"there is a table in {lake.table(name)}, and no checkpoint that wrote it: "
            "a first run would add everything again.",
            stream=name,
            fix="Restore the control and checkpoint folders from a backup, or move the table away.",
        )


def _check_bindings(stream: "Stream", manifest: Manifest, bound: Mapping[str, str]) -> None:
    for source, place in manifest.active.bindings.items():
        now = bound.get(source)
        if now is not None and now != place:
            raise TerminalError(
                f"the target binds {source!r} to {now}, and its checkpoint continues {place}.",
                stream=stream.name,
                fix="Bind it back; or use another lake for the new place; or declare a stream of a new name "
                "that reads it.",
            )


def _check_checkpoint(stream: "Stream", manifest: Manifest, checkpoint: "Path", tail: Tail) -> None:
    known = manifest.active.query_id
    if known is not None and tail.query_id is None:
        raise CheckpointError(
            f"its checkpoint {checkpoint} is gone or has no metadata file.",
            stream=stream.name,
            lost="Nothing was lost: the table has every batch that was committed.",
            fix="Restore the folder from a backup. To rebuild from the sources, move the stream's table, "
            "control and ledger folders away as well.",
        )
    if known is not None and tail.query_id != known:
        raise CheckpointError(
            f"its checkpoint {checkpoint} belongs to query {tail.query_id}, and the table was written by "
            f"query {known}: batches would be counted twice.",
            stream=stream.name,
            fix="Restore the checkpoint that belongs to the table.",
        )
    if tail.query_id is None:
        return
    for finding in verify(checkpoint, level="quick").findings:
        if finding.severity == "error" and finding.code != UNPINNED_PARTITIONS:
            raise CheckpointError(
                f"its checkpoint is damaged: {finding.what} ({finding.where}, {finding.code}).",
                stream=stream.name,
                fix=finding.fix,
            )


def _check_table(stream: "Stream", target: Target, manifest: Manifest, tail: Tail) -> None:
    active = manifest.active
    if active.table_id is None:
        return
    place = target.lake.table(stream.name)
    table = delta_log.open_table(place)
    if table is None or str(table.metadata().id) != active.table_id:
        state = "gone" if table is None else "another one than the checkpoint was made with"
        raise CheckpointError(
            f"its table {place} is {state}; a run would go on where the old one stopped.",
            stream=stream.name,
            lost="Rows that only the old table had are lost unless it is restored; the sources were not touched.",
            fix="Restore the table. To rebuild it from the sources, move the stream's checkpoint, "
            "control and ledger folders away as well.",
        )
    written = table.transaction_version(active.query_id) if active.query_id else None
    last = -1 if tail.latest_offset is None else tail.latest_offset.batch_id
    if written is not None and written > last:
        raise CheckpointError(
            f"the table has batch {written} of its query, and the checkpoint ends at batch {last}: an older "
            "copy of the checkpoint was put back, and Delta would silently skip the batches between.",
            stream=stream.name,
            fix="Put the newest copy of the checkpoint back.",
        )

"""A source that is bound to another folder, cluster or topic, or a table that moved: the checkpoint continues there."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidemill.catalog.sources import binding_to, location_of, refuse_managed_commits
from tidemill.checkpoint.format.offsets import Offsets
from tidemill.connectors.answers import Continuation
from tidemill.connectors.connector import Binding, Reading
from tidemill.connectors.registry import binding_of, describe, difference, resolved
from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.source import Source
from tidemill.errors import TerminalError
from tidemill.operations.core.change import Change, StreamUnderChange, changing
from tidemill.operations.core.spec import Argument, OperationSpec, flag
from tidemill.run.spark.engine import session_of

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.run.spark.engine import Engine
    from tidemill.target.target import Target


def rebind(
    stream: "Stream",
    target: "Target",
    source: str,
    *,
    engine: "Engine | None" = None,
    from_beginning: bool = False,
    dry_run: bool = False,
) -> Change:
    """Let a source continue in what the target binds it to now.

    Its position is kept: the offsets of a topic are continued in the new topic, and files that have the same path
    below the new folder count as read. A table of a catalog must be the same table in another folder.

    Args:
        target: The target, with the new binding.
        engine: Where Spark sessions come from; asked for a table of a catalog only.
        from_beginning: Whether everything in the new folder or topic is read instead.

    Raises:
        TerminalError: The binding is the same, or the position does not exist in the new one.
        TransientError: The cluster does not answer.
        LeaseHeldError: A run holds the stream's lease.
    """
    with changing(stream, target, "rebind", dry_run=dry_run) as subject:
        declared = stream.sources.get(source)
        recorded = subject.sources.get(source, SourceRecord())
        now = None if declared is None else _binding_now(stream, source, declared, target, engine)
        if declared is None or now is None or recorded.binding is None:
            bound = [known for known, record in subject.sources.items() if record.binding is not None]
            raise subject.refuse(
                f"no folder, topic or table of a catalog is recorded for a source {source!r}.",
                f"name one of {', '.join(bound) or 'its sources, once it has run'}.",
                code="source-never-read",
            )
        if difference(recorded.binding, now, declared, target) is None:
            raise subject.refuse(
                f"the source {source!r} reads {describe(now)}, which its checkpoint continues.",
                "no action is needed; run the stream.",
                code="nothing-to-change",
            )
        rebinding = _Rebinding(subject, source, declared, target, recorded.binding, now, from_beginning)
        effects, edit = rebinding.plan()
        if not dry_run:
            edit()
            subject.record({**subject.sources, source: replace(recorded, binding=now, kind=now["kind"])})
        return Change(
            stream=stream.name,
            what=f"The source {source!r} moves from {describe(recorded.binding)} to {describe(now)}.",
            effects=effects,
            copies=subject.copies,
        )


def _binding_now(
    stream: "Stream", name: str, source: Source, target: "Target", engine: "Engine | None"
) -> Binding | None:
    """Return what a source is bound to now; of a table in a catalog, the catalog is asked."""
    table = source.catalog_table
    if table is None or engine is None:
        return binding_of(source, target)
    with session_of(engine) as spark:
        location = location_of(stream, name, table, spark)
    refuse_managed_commits(stream, name, target.lake.table_at(location))
    return binding_to(table, location)


_Plan = tuple[tuple[str, ...], Callable[[], None]]


@dataclass(frozen=True, slots=True)
class _Rebinding:
    """A source's way from one binding to another; each plan is its effects, and the edit of the checkpoint."""

    subject: StreamUnderChange
    name: str
    source: Source
    target: "Target"
    old: Binding
    now: Binding
    from_beginning: bool

    def plan(self) -> _Plan:
        snapshot = self.subject.snapshot
        offset = snapshot.tail.planned(self.name)
        if not self.source.streaming:
            return ("It is a snapshot: the next batch reads it there.",), lambda: None
        if offset is None or offset.raw is None:
            return ("Nothing of the source was read so far.",), lambda: None
        connector, bound = resolved(self.source, self.target)
        reading = Reading(
            target=self.target,
            name=self.name,
            offset=offset,
            checkpoint=snapshot.checkpoint,
            record=SourceRecord(binding=self.old),
        )
        try:
            continuation = connector.continuation(
                bound, reading, self.now, from_beginning=self.from_beginning
            )
        except TerminalError as error:
            raise error.of(self.subject.stream.name) from None
        if continuation is not None:
            return continuation.effects, self._continuing(continuation)
        if not self.from_beginning:
            raise self.subject.refuse(
                f"its checkpoint has a position in {describe(self.old)}, which means nothing in "
                f"{describe(self.now)}.",
                "read the new one from its beginning with --from-beginning, or bind the source back.",
                code="rebind-not-possible",
            )
        self._refuse_unfinished_batch()

        def edit() -> None:
            self.subject.writer.archive_source(self.name)
            self.subject.writer.change_offsets(lambda offsets: {**offsets, self.name: None})

        return (f"Everything in {describe(self.now)} is read.",), edit

    def _continuing(self, continuation: Continuation) -> Callable[[], None]:
        """Return the edit of the checkpoint: of the source's own log, or of the offsets."""
        address = continuation.address
        if address is not None:
            return lambda: self.subject.writer.change_source_log(self.name, address)
        unfinished = self.subject.snapshot.tail.next_start.kind == "repeat_batch"
        if not continuation.is_exact:
            self._refuse_unfinished_batch()

        def continued(offsets: Offsets) -> Offsets:
            raw = offsets.get(self.name)
            keeps = raw is None or not unfinished
            return {**offsets, self.name: continuation.offset if keeps else continuation.renamed(str(raw))}

        return lambda: self.subject.writer.change_offsets(continued)

    def _refuse_unfinished_batch(self) -> None:
        start = self.subject.snapshot.tail.next_start
        if start.kind == "repeat_batch":
            raise self.subject.refuse(
                f"batch {start.batch_id} was planned over the old binding and must be repeated over it.",
                f"bind the source back and run the stream once (tidemill run {self.subject.stream.name}).",
                code="batch-not-finished",
            )


REBIND = OperationSpec(
    kind="rebind",
    summary="Accept the folder, topic or location of a table that a source is bound to now, after a comparison with "
    "the checkpoint.",
    apply=rebind,
    arguments=(
        Argument(
            name="source", help="The source: an argument of the function.", required=True, positional=True
        ),
        flag("from_beginning", "Read everything in the new folder or topic."),
    ),
    one_stream=True,
)

"""A source that is bound to another folder, cluster or topic: the checkpoint continues there."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tidemill.checkpoint import SourceOffset
from tidemill.checkpoint.format.offsets import Offsets
from tidemill.connectors.binding import Binding, binding_of, describe, difference, kafka_of
from tidemill.connectors.files.backlog import Relocation, listed_files, logged_files, plain_path
from tidemill.connectors.files.position import FilePosition
from tidemill.connectors.files.source import FileSource
from tidemill.connectors.kafka.position import TopicPosition
from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.source import Source
from tidemill.operations.core.change import Change, StreamUnderChange, changing
from tidemill.operations.core.spec import Argument, OperationSpec, Work, flag
from tidemill.operations.edits.positions import Partition, Positions, positions_in
from tidemill.run.decide.sources import strict
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.target.target import Target


def rebind(
    stream: "Stream", target: "Target", name: str, *, from_beginning: bool = False, dry_run: bool = False
) -> Change:
    """Let a source continue in what the target binds it to now.

    Its position is kept: the offsets of a topic are continued in the new topic, and files that have the same path
    below the new folder count as read.

    Args:
        stream: The stream.
        target: The target, with the new binding.
        name: The source's name.
        from_beginning: Whether everything in the new folder or topic is read instead.
        dry_run: Whether the change is planned only.

    Raises:
        TerminalError: The binding is the same, or the position does not exist in the new one.
        TransientError: The cluster does not answer.
        LeaseHeldError: A run holds the stream's lease.
    """
    with changing(stream, target, "rebind", dry_run=dry_run) as subject:
        source = stream.sources.get(name)
        recorded = subject.sources.get(name, SourceRecord())
        now = None if source is None else binding_of(source, target)
        if source is None or now is None or recorded.binding is None:
            bound = [known for known, record in subject.sources.items() if record.binding is not None]
            raise subject.refuse(
                f"no folder and no topic is recorded for a source {name!r}.",
                f"name one of {', '.join(bound) or 'its sources, once it has run'}.",
            )
        if difference(recorded.binding, now, strict=strict(source)) is None:
            raise subject.refuse(
                f"the source {name!r} reads {describe(now)}, which its checkpoint continues.",
                "no action is needed; run the stream.",
            )
        rebinding = _Rebinding(subject, name, source, target, recorded.binding, now, from_beginning)
        effects, edit = rebinding.plan()
        if not dry_run:
            edit()
            subject.record({**subject.sources, name: replace(recorded, binding=now)})
        return Change(
            stream=stream.name,
            what=f"The source {name!r} moves from {describe(recorded.binding)} to {describe(now)}.",
            effects=effects,
            copies=subject.copies,
        )


_Plan = tuple[tuple[str, ...], Callable[[], None]]


def _no_edit() -> None:
    """Leave the checkpoint as it is."""


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
        entry = self.subject.snapshot.tail.latest_offset
        offset = None if entry is None else entry.source(self.name)
        if offset is None or offset.raw is None:
            return ("Nothing of the source was read so far.",), _no_edit
        if self.now["kind"] == "folder" and FilePosition.of(offset) and not self.from_beginning:
            return self._to_folder()
        if self.now["kind"] == "kafka" and (position := TopicPosition.of(offset)):
            return self._to_topics(position)
        if not self.from_beginning:
            raise self.subject.refuse(
                f"its checkpoint has a position in {describe(self.old)}, which means nothing in "
                f"{describe(self.now)}.",
                "read the new one from its beginning with --from-beginning, or bind the source back.",
            )
        self._refuse_unfinished_batch()

        def edit() -> None:
            self.subject.writer.archive_source(self.name)
            self.subject.writer.change_offsets(lambda offsets: {**offsets, self.name: None})

        return (f"Everything in {describe(self.now)} is read.",), edit

    def _to_folder(self) -> _Plan:
        relocation = Relocation(self.old["path"], self.now["path"])
        options = self.source.options if isinstance(self.source, FileSource) else {}
        present = set(listed_files(self.now["path"], options))
        logged = [file.path for file in logged_files(self.subject.snapshot.checkpoint, self.name)]
        read = {plain_path(relocation.address(address)) for address in logged}
        effects = (
            f"The stream has read {pluralize(len(logged), 'file')} in {self.old['path']}.",
            f"Read already, by their path below {self.now['path']}: {pluralize(len(read & present), 'file')}.",
            f"Not read yet: {pluralize(len(present - read), 'file')}.",
        )
        return effects, lambda: self.subject.writer.change_source_log(self.name, relocation.address)

    def _to_topics(self, position: TopicPosition) -> _Plan:
        single = len(self.old["topics"]) == len(self.now["topics"]) == 1
        names = dict(zip(self.old["topics"], self.now["topics"], strict=True)) if single else {}
        at = _renamed(position.by_partition, names)
        positions = self._positions(at)
        unfinished = self.subject.snapshot.tail.next_start.kind == "repeat_batch"
        if unfinished and positions.offsets != at:
            self._refuse_unfinished_batch()

        def continued(offsets: Offsets) -> Offsets:
            raw = offsets.get(self.name)
            if raw is None or not unfinished:
                return {**offsets, self.name: _json(positions.offsets)}
            own = TopicPosition.of(SourceOffset.parse("", self.name, None, raw))
            return {**offsets, self.name: raw if own is None else _json(_renamed(own.by_partition, names))}

        return positions.effects, lambda: self.subject.writer.change_offsets(continued)

    def _positions(self, at: Mapping[Partition, int]) -> Positions:
        from tidemill.connectors.kafka.backlog import committed_only, partitions_of, topics_of
        from tidemill.connectors.kafka.client import client_of

        kafka, cluster = kafka_of(self.source, self.target)
        client = client_of(cluster)
        partitions = partitions_of(kafka, topics_of(kafka, client, cluster) or {}, cluster)
        begins, ends = client.offsets(partitions, committed=committed_only(kafka, cluster))
        again = [topic for topic in self.now["topics"] if self.from_beginning and not self._is_same(topic)]
        positions = positions_in(begins, ends, at, again=again)
        if positions.impossible:
            raise self.subject.refuse(
                "the new topic has fewer messages than this stream has read "
                f"({'; '.join(positions.impossible)}).",
                "read it from its beginning with --from-beginning, which repeats messages that the old topic had "
                "as well; or bind the source back.",
            )
        return positions

    def _is_same(self, topic: str) -> bool:
        ids = self.old["topics"].get(topic), self.now["topics"].get(topic)
        return self.old["cluster_id"] == self.now["cluster_id"] and ids[0] is not None and ids[0] == ids[1]

    def _refuse_unfinished_batch(self) -> None:
        start = self.subject.snapshot.tail.next_start
        if start.kind == "repeat_batch":
            raise self.subject.refuse(
                f"batch {start.batch_id} was planned over the old binding and must be repeated over it.",
                f"bind the source back and run the stream once (tidemill run {self.subject.stream.name}).",
            )


def _renamed(offsets: Mapping[Partition, int], names: Mapping[str, str]) -> dict[Partition, int]:
    return {(names.get(topic, topic), number): at for (topic, number), at in offsets.items()}


def _json(offsets: Mapping[Partition, int]) -> str:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, number), at in offsets.items():
        by_topic.setdefault(topic, {})[str(number)] = at
    return json.dumps(by_topic, separators=(",", ":"))


def _apply(stream: "Stream", work: Work, *, source: str, **arguments: Any) -> Change:
    return rebind(stream, work.target, source, **arguments)


REBIND = OperationSpec(
    kind="rebind",
    summary="Accept what the target binds a source to now, after a comparison of both sides.",
    apply=_apply,
    arguments=(
        Argument(
            name="source", help="The source: an argument of the function.", required=True, positional=True
        ),
        flag("from_beginning", "Read everything in the new folder or topic."),
    ),
    one_stream=True,
)

"""Where a stream continues in topics: at offsets that a person names, at their ends, or in other topics."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.checkpoint import SourceOffset
from tidemill.connectors.answers import Continuation, Start
from tidemill.connectors.connector import Binding, Reading
from tidemill.connectors.kafka.backlog import offsets_now
from tidemill.connectors.kafka.position import TopicPosition, offsets_json
from tidemill.connectors.kafka.source import KafkaSource
from tidemill.errors import TerminalError
from tidemill.text.plurals import pluralize

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Positions:
    """Where a stream continues in new topics.

    Attributes:
        offsets: The next offset by partition.
        effects: One sentence per partition.
        impossible: One sentence per partition that has fewer messages than the stream has read.
    """

    offsets: Mapping[Partition, int]
    effects: tuple[str, ...]
    impossible: tuple[str, ...]


def positions_in(
    begins: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    at: Mapping[Partition, int],
    *,
    again: Collection[str] = (),
) -> Positions:
    """Return where a stream continues in topics.

    Args:
        begins: The first offset of each partition.
        ends: The offset after the last message of each partition.
        at: The checkpoint's offsets, under the topics' new names.
        again: Topics that are read from their beginning.
    """
    offsets: dict[Partition, int] = {}
    effects, impossible = [], []
    for partition in sorted({*begins, *at}):
        name = f"{partition[0]}-{partition[1]}"
        if partition not in begins:
            effects.append(f"{name} does not exist: messages after offset {at[partition]} are not read.")
            continue
        begin, end = begins[partition], ends[partition]
        known = f"offset {at[partition]}" if partition in at else "no offset"
        both = f"{name}: the checkpoint has {known}, the topic has {begin} to {end}"
        wanted = begin if partition[0] in again else at.get(partition, begin)
        if wanted > end:
            impossible.append(both)
            continue
        offsets[partition] = max(wanted, begin)
        lost = f" Messages {wanted} to {begin - 1} are lost to this stream." if wanted < begin else ""
        effects.append(f"{both}: {pluralize(end - offsets[partition], 'message')} to read.{lost}")
    return Positions(offsets, tuple(effects), tuple(impossible))


def end_of_topics(source: KafkaSource, reading: Reading) -> Start:
    """Return the offsets after the last messages of topics."""
    _, ends = offsets_now(source, reading.target, committed=True)
    position = TopicPosition.of(reading.offset)
    read = {} if position is None else position.by_partition
    unread = sum(end - read.get(partition, 0) for partition, end in ends.items())
    return Start(
        offset=offsets_json(ends),
        skipped=f"{pluralize(unread, 'message')} of {source.describe()}" if unread else "",
    )


def start_at(position: TopicPosition, name: str, wanted: Mapping[str, Any]) -> Start:
    """Return the start at offsets that a person names, by topic and partition.

    Args:
        wanted: The offsets; the other partitions keep theirs.

    Raises:
        TerminalError: It has no such partition.
    """
    merged = position.by_partition
    skipped = doubled = 0
    for topic, numbers in wanted.items():
        for number, at in numbers.items() if isinstance(numbers, Mapping) else ():
            before = merged.get((topic, int(number))) if str(number).isdigit() else None
            if before is None or not isinstance(at, int) or at < 0:
                raise TerminalError(
                    f"{topic}-{number} is no partition that it reads.",
                    fix="correct the offsets.",
                    code="start-invalid",
                )
            skipped += max(0, at - before)
            doubled += max(0, before - at)
            merged[topic, int(number)] = at
    return Start(
        offset=offsets_json(merged),
        skipped=f"{pluralize(skipped, 'message')} of {name}" if skipped else "",
        doubled=f"{pluralize(doubled, 'message')} of {name}" if doubled else "",
    )


def continue_in(
    source: KafkaSource, reading: Reading, now: Binding, *, from_beginning: bool
) -> Continuation | None:
    """Return how a stream continues in other topics; None where it has not read topics.

    Args:
        reading: How far the stream has read the recorded topics.
        now: The binding in which it continues.
        from_beginning: Whether topics that are not the recorded ones are read from their beginning.

    Raises:
        TerminalError: The new topics have fewer messages than the stream has read.
    """
    position, old = TopicPosition.of(reading.offset), reading.record.binding
    if position is None or old is None or old["kind"] != now["kind"]:
        return None
    single = len(old["topics"]) == len(now["topics"]) == 1
    names = dict(zip(old["topics"], now["topics"], strict=True)) if single else {}
    at = _renamed(position.by_partition, names)
    begins, ends = offsets_now(source, reading.target, committed=True)
    again = [topic for topic in now["topics"] if from_beginning and not _is_same(topic, old, now)]
    positions = positions_in(begins, ends, at, again=again)
    if positions.impossible:
        raise TerminalError(
            f"the new topic has fewer messages than this stream has read ({'; '.join(positions.impossible)}).",
            fix="read it from its beginning with --from-beginning, which repeats messages that the old topic had "
            "as well; or bind the source back.",
            code="rebind-not-possible",
        )

    def renamed(raw: str) -> str:
        own = TopicPosition.of(SourceOffset.parse("", reading.name, None, raw))
        return raw if own is None else offsets_json(_renamed(own.by_partition, names))

    return Continuation(
        effects=positions.effects,
        offset=offsets_json(positions.offsets),
        renamed=renamed,
        is_exact=positions.offsets == at,
    )


def _is_same(topic: str, old: Binding, now: Binding) -> bool:
    ids = old["topics"].get(topic), now["topics"].get(topic)
    return bool(old["cluster_id"] == now["cluster_id"] and ids[0] is not None and ids[0] == ids[1])


def _renamed(offsets: Mapping[Partition, int], names: Mapping[str, str]) -> dict[Partition, int]:
    return {(names.get(topic, topic), number): at for (topic, number), at in offsets.items()}

"""The messages of topics that are read again: by their timestamps, which the broker looks up."""

from typing import TYPE_CHECKING

from tidemill.connectors.answers import Offsets, Period, SourceSpan
from tidemill.connectors.connector import Reading
from tidemill.connectors.kafka.backlog import initial_offsets, offsets_now
from tidemill.connectors.kafka.client import client_of
from tidemill.connectors.kafka.position import TopicPosition, offsets_json
from tidemill.connectors.kafka.source import KafkaSource
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.connectors.kafka.client import Partition

_MOST_NAMED = 5


def topic_span(source: KafkaSource, reading: Reading, period: Period) -> SourceSpan:
    """Return what is read of the topics of a source.

    Args:
        period: The time of what is read.

    Raises:
        TransientError: The cluster does not answer.
        TerminalError: It refuses this user.
    """
    client = client_of(source.cluster_in(reading.target))
    position = TopicPosition.of(reading.offset)
    read = {} if position is None else position.by_partition
    topics = client.topics({topic for topic, _ in read})
    present = [
        (topic, number) for topic, number in read if topic in topics and number < topics[topic].partitions
    ]
    firsts, heads = client.offsets(present, committed=False)
    initial = initial_offsets(reading.checkpoint, reading.name)
    return messages_span(
        read=read,
        started={} if initial is None else initial.by_partition,
        firsts=firsts,
        heads=heads,
        begins=client.offsets_at(present, period.first_ms),
        ends=client.offsets_at(present, period.last_ms + 1),
    )


def messages_span(
    *,
    read: Offsets,
    started: Offsets,
    firsts: Offsets,
    heads: Offsets,
    begins: Offsets,
    ends: Offsets,
) -> SourceSpan:
    """Return what is read of topics.

    Args:
        read: The offsets up to which the stream has read; the others have these partitions, or some of them.
        started: Where the stream began; 0 where nothing is known.
        firsts: The first offset that each partition has.
        heads: The offset after its last message.
        begins: The first offset with a time in the period or later.
        ends: The first offset with a later time.
    """
    from_offsets: dict[Partition, int] = {}
    to_offsets: dict[Partition, int] = {}
    missing = []
    for partition, position in sorted(read.items()):
        first, start = firsts.get(partition, position), started.get(partition, 0)
        begin = max(min(begins.get(partition, position), position), start, first)
        from_offsets[partition] = begin
        to_offsets[partition] = max(min(ends.get(partition, position), position), begin)
        if partition not in firsts:
            missing.append(f"Partition {partition[0]}-{partition[1]} is missing.")
            continue
        # The messages before the first one may be of the period, unless that one is of an earlier time.
        is_oldest = begins.get(partition) == first or first == heads.get(partition)
        if first > start and is_oldest and position > start:
            missing.append(
                f"Messages {start} to {min(first, position) - 1} of {partition[0]}-{partition[1]} are missing, "
                "and nobody knows their times."
            )
    return SourceSpan(
        reads=_described(from_offsets, to_offsets),
        is_empty=from_offsets == to_offsets,
        missing=tuple(missing),
        begins=from_offsets,
        ends=to_offsets,
        end=offsets_json(to_offsets),
    )


def span_read(reading: Reading) -> SourceSpan:
    """Return what a checkpoint has read of topics."""
    initial, read = initial_offsets(reading.checkpoint, reading.name), TopicPosition.of(reading.offset)
    return SourceSpan(
        reads="messages",
        begins={} if initial is None else initial.by_partition,
        ends={} if read is None else read.by_partition,
        end=None if reading.offset is None else reading.offset.raw,
    )


def removed_messages(source: KafkaSource, reading: Reading) -> tuple[str, ...]:
    """Return the partitions whose first messages are missing, a sentence each."""
    position = TopicPosition.of(reading.offset)
    begins, _ = offsets_now(source, reading.target)
    read = {} if position is None else position.by_partition
    firsts = {partition: min(begins.get(partition, at), at) for partition, at in read.items()}
    return tuple(
        f"Messages 0 to {first - 1} of {topic}-{number} are missing."
        for (topic, number), first in firsts.items()
        if first > 0
    )


def _described(begins: Offsets, ends: Offsets) -> str:
    ranges = [
        f"{begin:,} to {ends[partition] - 1:,} of {partition[0]}-{partition[1]}"
        for partition, begin in begins.items()
        if ends[partition] > begin
    ]
    if not ranges:
        return f"no message of {', '.join(sorted({topic for topic, _ in begins}))}"
    more = len(ranges) - _MOST_NAMED
    return f"messages {', '.join(ranges[:_MOST_NAMED])}" + (
        f" and those of {pluralize(more, 'partition')} more" if more > 0 else ""
    )

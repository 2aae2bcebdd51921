"""The messages of topics that a backfill with a lookback reads: by their timestamps, which the broker looks up."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.connectors.binding import kafka_of
from tidemill.connectors.kafka.backlog import initial_offsets
from tidemill.connectors.kafka.client import client_of
from tidemill.connectors.kafka.position import TopicPosition
from tidemill.operations.replay.source_span import Period, SourceSpan
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checkpoint import SourceOffset
    from tidemill.connectors.kafka.client import Partition
    from tidemill.definitions.source import Source
    from tidemill.operations.replay.source_span import Offsets
    from tidemill.target.target import Target

_MOST_NAMED = 5


def topic_span(
    source: "Source", target: "Target", checkpoint: Path, offset: "SourceOffset", period: Period
) -> SourceSpan:
    """Return what is read of the topics of a source.

    Args:
        source: The source.
        target: The target.
        checkpoint: The checkpoint of its stream.
        offset: The offset up to which the stream has read.
        period: The time of what is read.

    Raises:
        TransientError: The cluster does not answer.
        TerminalError: It refuses this user.
    """
    _, cluster = kafka_of(source, target)
    client = client_of(cluster)
    position = TopicPosition.of(offset)
    read = {} if position is None else position.by_partition
    topics = client.topics({topic for topic, _ in read})
    present = [
        (topic, number) for topic, number in read if topic in topics and number < topics[topic].partitions
    ]
    firsts, heads = client.offsets(present, committed=False)
    initial = initial_offsets(checkpoint, offset.key)
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
    read: "Offsets",
    started: "Offsets",
    firsts: "Offsets",
    heads: "Offsets",
    begins: "Offsets",
    ends: "Offsets",
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


def offsets_json(offsets: "Offsets") -> str:
    """Return offsets as Spark writes them."""
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, number), at in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(number)] = at
    return json.dumps(by_topic, separators=(",", ":"))


def _described(begins: "Offsets", ends: "Offsets") -> str:
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

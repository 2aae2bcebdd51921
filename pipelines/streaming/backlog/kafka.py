"""The backlog in Kafka: end offsets against the checkpoint's, without reading a message.

Failures that Spark would raise are raised here first: missing partitions, records that retention removed, a
topic that was recreated with fewer records.
"""

import re
from collections.abc import Mapping

from pipelines.streaming.backlog.cluster import Client, Partition, client_of
from pipelines.streaming.backlog.count import Backlog
from pipelines.streaming.checkpoint import SourceOffset
from pipelines.streaming.errors import DataLossError, TerminalError
from pipelines.streaming.sources import KafkaSource
from pipelines.streaming.target import KafkaCluster

# Java and Python agree on these; a pattern with anything else is left to Spark.
_PLAIN_PATTERN = re.compile(r"(?:[A-Za-z0-9_\-.*+?|()$^]|\\[.dws]|\[\^?[A-Za-z0-9_.\-]+\])+")
# `SubscribePatternStrategy` never reads them.
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})
_LATEST, _EARLIEST = -1, -2  # in startingOffsets
_WAYS = (
    "bind the feed to a topic that has the messages; or read the topic into a stream of a new name, or into another "
    "lake, which begins with a new checkpoint."
)


def waiting_messages(source: KafkaSource, offset: SourceOffset | None, cluster: KafkaCluster) -> Backlog:
    """Return the messages that a source has not read.

    Control records of transactions count as messages: Spark's offsets count them, too.

    Args:
        source: The source.
        offset: Its offset in the checkpoint.
        cluster: The cluster.

    Raises:
        TransientError: The cluster does not answer.
        TerminalError: It refuses this user, or a topic is missing.
        DataLossError: It no longer has the messages that come next.
    """
    options = {key.lower(): value for key, value in source.options.items()}
    strict = options.get("failondataloss", "").lower() != "false"
    if source.subscribe_pattern and not _same_in_python(source.subscribe_pattern):
        return Backlog(1, "messages", f"only Spark knows what {source.subscribe_pattern!r} matches")
    client = client_of(cluster)
    present = _partitions(source, client, cluster)
    read = {} if offset is None else _by_partition(offset)
    missing = sorted(set(read) - present)
    if missing and strict:
        raise _partition_missing(missing[0], read[missing[0]], cluster)
    begins, ends = client.offsets(present, committed=options.get("kafka.isolation.level") == "read_committed")
    starts = _starts(source, begins, ends) if offset is None else {}
    waiting: dict[Partition, int] = {}
    for partition in sorted(present):
        first, end = begins[partition], ends[partition]
        # A partition that was added later is read from its first record, whatever startingOffsets is.
        at = starts[partition] if offset is None else read.get(partition, 0)
        if offset is not None and strict and not first <= at <= end:
            raise _out_of_range(partition, at, first, end, cluster)
        waiting[partition] = end - (at if first <= at <= end else first)
    detail = ", ".join(f"{topic}-{number}: {count}" for (topic, number), count in waiting.items() if count)
    return Backlog(sum(waiting.values()), "messages", detail)


def _by_partition(offset: SourceOffset) -> dict[Partition, int]:
    return {(topic, number): at for topic, of in offset.partitions.items() for number, at in of.items()}


def _same_in_python(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return _PLAIN_PATTERN.fullmatch(pattern) is not None


def _partitions(source: KafkaSource, client: Client, cluster: KafkaCluster) -> set[Partition]:
    """Return the partitions that the source reads now."""
    if source.subscribe_pattern:
        pattern = re.compile(source.subscribe_pattern)
        counts = {
            topic: count
            for topic, count in client.all_topics().items()
            if topic not in _INTERNAL and pattern.fullmatch(topic)
        }
    else:
        topics = source.subscribe or tuple(source.assign)
        counts = client.topics(topics)
        for topic in topics:
            if topic not in counts:
                raise TerminalError(
                    f"there is no topic {topic!r} on the Kafka cluster {cluster.bootstrap}.",
                    fix="create the topic, or correct the binding in the target.",
                )
    present = {(topic, number) for topic, count in counts.items() for number in range(count)}
    if not source.assign:
        return present
    assigned = {(topic, number) for topic, numbers in source.assign.items() for number in numbers}
    for topic, number in sorted(assigned - present):
        raise TerminalError(
            f"topic {topic!r} on the Kafka cluster {cluster.bootstrap} has no partition {number}.",
            fix=f"correct assign= of the source: the topic has the partitions 0 to {counts[topic] - 1}.",
        )
    return assigned


def _starts(
    source: KafkaSource, begins: Mapping[Partition, int], ends: Mapping[Partition, int]
) -> dict[Partition, int]:
    """Return where a source without offsets begins; what only Spark can resolve begins at the first record."""
    if source.starting_offsets == "latest":
        return dict(ends)
    starts = dict(begins)
    if not isinstance(source.starting_offsets, str):
        for topic, numbers in source.starting_offsets.items():
            for number, at in numbers.items():
                if at == _LATEST and (topic, number) in ends:
                    starts[topic, number] = ends[topic, number]
                elif at not in (_LATEST, _EARLIEST):
                    starts[topic, number] = at
    return starts


def _partition_missing(partition: Partition, at: int, cluster: KafkaCluster) -> DataLossError:
    topic, number = partition
    return DataLossError(
        f"partition {number} of topic {topic!r} on {cluster.bootstrap} is missing, and the checkpoint continues "
        f"there at offset {at}: the topic was deleted, or recreated with fewer partitions.",
        lost=f"Messages of that partition from offset {at} on, if there were any, are lost.",
        fix=_WAYS,
    )


def _out_of_range(
    partition: Partition, at: int, first: int, end: int, cluster: KafkaCluster
) -> DataLossError:
    topic, number = partition
    where = f"partition {number} of topic {topic!r} on {cluster.bootstrap}"
    if at > end:
        return DataLossError(
            f"{where} ends at offset {end}, and the checkpoint continues at offset {at}: the topic was recreated "
            "with fewer messages, or restored from an older copy.",
            lost=f"Offsets {end} to {at - 1} are missing in the topic (this stream has read them); offsets "
            f"{first} to {end - 1} may hold new messages that it would never read.",
            fix=_WAYS,
        )
    return DataLossError(
        f"{where} begins at offset {first}, and the checkpoint continues at offset {at}: retention removed "
        "messages before they were read.",
        lost=f"Offsets {at} to {first - 1} (at most {first - at} messages) are lost to this stream.",
        fix=_WAYS,
    )

"""The backlog in Kafka: end offsets against the checkpoint's, without reading a message.

Failures that Spark would raise are raised here first: missing partitions, records that retention removed, a
topic that was recreated with fewer records.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from tidemill.checkpoint import FileAbsentError, SourceOffset
from tidemill.checkpoint.format.folder import Checkpoint, Folder
from tidemill.checkpoint.format.source_log import source_folder
from tidemill.connectors.backlog import Backlog, Unread
from tidemill.connectors.kafka.client import Client, Partition, Topic, client_of
from tidemill.connectors.kafka.position import TopicPosition
from tidemill.connectors.kafka.source import EARLIEST, KafkaSource
from tidemill.connectors.known_options import option_of
from tidemill.definitions.run_when import Amount, moment
from tidemill.errors import DataLossError, TerminalError, TidemillError
from tidemill.target.target import KafkaCluster, Target
from tidemill.text.plurals import pluralize

# Java and Python agree on these; a pattern with anything else is left to Spark.
_PLAIN_PATTERN = re.compile(r"(?:[A-Za-z0-9_\-.*+?|()$^]|\\[.dws]|\[\^?[A-Za-z0-9_.\-]+\])+")
# `SubscribePatternStrategy` never reads them.
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})
_LATEST = -1  # in startingOffsets
_INITIAL_VERSION = "v1"
_WAYS = (
    "bind the feed to a topic that has the messages; or read the topic into a stream of a new name, or into another "
    "lake, which begins with a new checkpoint."
)


@dataclass(frozen=True, slots=True)
class UnreadMessages(Unread):
    """Partitions with unread messages.

    Attributes:
        positions: The offset of the first unread message, by topic and partition.
    """

    cluster: KafkaCluster
    positions: Mapping[Partition, int]

    def amount(self, count: int, *, times: bool) -> Amount:
        """Return the messages and, for a round trip, their times; a broker that does not answer leaves them unknown."""
        written: list[int] = []
        if times:
            with suppress(TidemillError):
                client = client_of(self.cluster)
                oldest = client.timestamps(self.positions).values()
                written = [*oldest, *client.newest_times(self.positions)]
        moments = [moment(time) for time in written]
        return Amount(rows=count, oldest_at=min(moments, default=None), newest_at=max(moments, default=None))


def waiting_messages(
    source: KafkaSource,
    offset: SourceOffset | None,
    cluster: KafkaCluster,
    *,
    checkpoint: Checkpoint | None = None,
    name: str = "",
) -> Backlog:
    """Return the messages that a source has not read.

    Control records of transactions count as messages: Spark's offsets count them, too.

    Args:
        offset: Its offset in the checkpoint.
        checkpoint: The checkpoint's folder, where Spark keeps the offsets that it resolved at its first start;
            None before the first run.
        name: The source's name in it.

    Raises:
        TransientError: The cluster does not answer.
        TerminalError: It refuses this user, or a topic is missing.
        DataLossError: It no longer has the messages that come next.
    """
    strict = source.fails_on_data_loss
    client = client_of(cluster)
    topics = topics_of(source, client, cluster)
    if topics is None:
        return Backlog(1, "unknown", f"only Spark knows what {source.subscribe_pattern!r} matches")
    present = partitions_of(source, topics, cluster)
    position = TopicPosition.of(offset)
    read = {} if position is None else position.by_partition
    missing = sorted(set(read) - present)
    if missing and strict:
        raise _partition_missing(missing[0], read[missing[0]], cluster)
    begins, ends = client.offsets(present, committed=committed_only(source, cluster))
    starts: dict[Partition, int] = {}
    if offset is None:
        initial = initial_offsets(checkpoint, name)
        if initial is None and checkpoint is not None and Folder.at(checkpoint).has("metadata"):
            return Backlog(1, "messages", "its first batch was never planned")
        starts = _starts(source, begins, ends) if initial is None else begins | initial.by_partition
    waiting: dict[Partition, int] = {}
    positions: dict[Partition, int] = {}
    for partition in sorted(present):
        first, end = begins[partition], ends[partition]
        # A partition that was added later is read from its first record, whatever startingOffsets is.
        at = starts.get(partition, first) if offset is None else read.get(partition, 0)
        if offset is not None and strict and not first <= at <= end:
            raise _out_of_range(partition, at, first, end, cluster)
        positions[partition] = at if first <= at <= end else first
        waiting[partition] = end - positions[partition]
    unread = {partition: positions[partition] for partition, count in waiting.items() if count}
    return Backlog(
        sum(waiting.values()),
        "messages",
        ", ".join(f"{topic}-{number}: {waiting[topic, number]}" for topic, number in unread),
        head=", ".join(f"{topic}-{number}: {ends[topic, number]}" for topic, number in sorted(present)),
        unread=UnreadMessages(cluster, unread) if unread else None,
    )


def offsets_now(
    source: KafkaSource, target: Target, *, committed: bool = False
) -> tuple[Mapping[Partition, int], Mapping[Partition, int]]:
    """Return the first offset of each partition that a source reads, and the offset after its last message.

    Args:
        committed: Whether the source's isolation level counts: messages of open transactions are not there yet.
    """
    cluster = source.cluster_in(target)
    client = client_of(cluster)
    partitions = partitions_of(source, topics_of(source, client, cluster) or {}, cluster)
    return client.offsets(partitions, committed=committed and committed_only(source, cluster))


def committed_only(source: KafkaSource, cluster: KafkaCluster) -> bool:
    """Return whether a source reads up to the last committed transaction."""
    return (option_of(source.options, "kafka.isolation.level") or cluster.isolation_level) == "read_committed"


def initial_offsets(checkpoint: Checkpoint | None, name: str) -> TopicPosition | None:
    """Return where Spark has decided that a source begins; None where it has not decided yet.

    Spark writes it before the first batch is planned: a zero byte, a version line, and the offsets as JSON.

    Args:
        checkpoint: The checkpoint's folder; None before the first run.
        name: The source's name in it.
    """
    if checkpoint is None:
        return None
    where = f"{source_folder(name)}/0"
    try:
        content = Folder.at(checkpoint).read(where)
    except FileAbsentError:
        return None
    version, _, offsets = content.decode().removeprefix("\0").partition("\n")
    return (
        TopicPosition.of(SourceOffset.parse(where, name, None, offsets))
        if version == _INITIAL_VERSION
        else None
    )


def _same_in_python(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return _PLAIN_PATTERN.fullmatch(pattern) is not None


def topics_of(source: KafkaSource, client: Client, cluster: KafkaCluster) -> dict[str, Topic] | None:
    """Return the topics that a source reads now; None where only Spark knows what its pattern matches.

    Raises:
        TerminalError: There is no topic of a name that it has.
    """
    if source.subscribe_pattern:
        if not _same_in_python(source.subscribe_pattern):
            return None
        pattern = re.compile(source.subscribe_pattern)
        return client.topics(
            [topic for topic in client.all_topics() if topic not in _INTERNAL and pattern.fullmatch(topic)]
        )
    names = source.subscribe or tuple(source.assign)
    topics = client.topics(names)
    for name in names:
        if name not in topics:
            raise TerminalError(
                f"there is no topic {name!r} on the Kafka cluster {cluster.bootstrap}.",
                fix="create the topic, or correct the binding in the target.",
                code="kafka-topic-missing",
            )
    return topics


def partitions_of(source: KafkaSource, topics: Mapping[str, Topic], cluster: KafkaCluster) -> set[Partition]:
    """Return the partitions of these topics that a source reads.

    Raises:
        TerminalError: A partition of `assign` does not exist.
    """
    present = {(name, number) for name, topic in topics.items() for number in range(topic.partitions)}
    if not source.assign:
        return present
    assigned = {(topic, number) for topic, numbers in source.assign.items() for number in numbers}
    for topic, number in sorted(assigned - present):
        raise TerminalError(
            f"topic {topic!r} on the Kafka cluster {cluster.bootstrap} has no partition {number}.",
            fix=f"correct assign= of the source: the topic has the partitions 0 to {topics[topic].partitions - 1}.",
            code="kafka-partition-missing",
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
                elif at not in (_LATEST, EARLIEST):
                    starts[topic, number] = at
    return starts


def _partition_missing(partition: Partition, at: int, cluster: KafkaCluster) -> DataLossError:
    topic, number = partition
    return DataLossError(
        f"partition {number} of topic {topic!r} on {cluster.bootstrap} is missing, and the checkpoint continues "
        f"there at offset {at}: the topic was deleted, or recreated with fewer partitions.",
        lost=f"Messages of that partition from offset {at} on, if there were any, are lost.",
        fix=_WAYS,
        code="kafka-offsets-missing",
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
            code="kafka-offsets-missing",
        )
    return DataLossError(
        f"{where} begins at offset {first}, and the checkpoint continues at offset {at}: retention removed "
        "messages before they were read.",
        lost=f"Offsets {at} to {first - 1} (at most {pluralize(first - at, 'message')}) are lost to this stream.",
        fix=_WAYS,
        code="kafka-offsets-missing",
    )

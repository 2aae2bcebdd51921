"""How Spark reads Kafka."""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tidemill.checkpoint import SourceOffset
from tidemill.connectors.answers import (
    SOURCE,
    Continuation,
    Expiry,
    ExternalData,
    Offsets,
    Period,
    SourceSpan,
    Start,
)
from tidemill.connectors.backlog import Backlog
from tidemill.connectors.connector import Binding, Connector, Reading, SourceContext
from tidemill.connectors.external_keys import pattern_key, topic_key
from tidemill.connectors.kafka.position import TopicPosition
from tidemill.connectors.kafka.source import EARLIEST, KafkaSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from tidemill.target.target import Target


class KafkaConnector(Connector[KafkaSource]):
    """Topics of a Kafka cluster."""

    kind = "kafka"
    position = TopicPosition
    has_gaps = True
    is_direct = True

    # librdkafka is loaded only where a topic is read, hence the imports.

    def binding(self, source: KafkaSource, target: "Target") -> Binding | None:
        """Return the cluster and the topics, each with its id; None where only Spark knows what a pattern matches."""
        from tidemill.connectors.kafka.backlog import topics_of
        from tidemill.connectors.kafka.client import client_of

        cluster = source.cluster_in(target)
        client = client_of(cluster)
        topics = topics_of(source, client, cluster)
        if topics is None:
            return None
        return {
            "kind": "kafka",
            "cluster_id": client.cluster_id(),
            "topics": {name: topic.topic_id for name, topic in sorted(topics.items())},
        }

    def describe_binding(self, binding: Binding) -> str:
        """Return the topics and the cluster."""
        topics = ", ".join(sorted(binding["topics"])) or "no topic"
        return f"{topics} of the Kafka cluster {binding['cluster_id']}"

    def difference(self, source: KafkaSource, recorded: Binding, now: Binding) -> str | None:
        """Return that the cluster or a topic is another one; None where they are the same, or topics were added."""
        if recorded["cluster_id"] != now["cluster_id"]:
            return self.changed(recorded, now)
        for topic, topic_id in recorded["topics"].items():
            if topic not in now["topics"]:
                if source.fails_on_data_loss:
                    return self.changed(recorded, now)
            elif None not in (topic_id, now["topics"][topic]) and topic_id != now["topics"][topic]:
                return (
                    f"reads topic {topic!r} with the id {now['topics'][topic]}, and its checkpoint continues the "
                    f"topic of that name with the id {topic_id}: it was deleted and recreated"
                )
        return None

    def backlog(self, source: KafkaSource, reading: Reading) -> Backlog:
        """Return the messages that no batch has read."""
        from tidemill.connectors.kafka.backlog import waiting_messages

        cluster = source.cluster_in(reading.target)
        return waiting_messages(
            source, reading.offset, cluster, checkpoint=reading.checkpoint, name=reading.name
        )

    def expiry(self, source: KafkaSource, reading: Reading) -> Expiry | None:
        """Return when the first unread message may be removed."""
        from tidemill.connectors.kafka.retention import topic_expiry

        position = TopicPosition.of(reading.offset)
        cluster = source.cluster_in(reading.target)
        return None if position is None else topic_expiry(source, position, cluster)

    def rows(self, source: KafkaSource, reading: Reading, end: SourceOffset) -> int | None:
        """Return the number of offsets; None with a new partition, whose first offset only the cluster knows."""
        start, last = TopicPosition.of(reading.offset), TopicPosition.of(end)
        if start is None or last is None or last.by_partition.keys() - start.by_partition.keys():
            return None
        return sum(at - start.by_partition[partition] for partition, at in last.by_partition.items())

    def span(self, source: KafkaSource, reading: Reading, period: Period) -> SourceSpan:
        """Return the messages of a period."""
        from tidemill.connectors.kafka.span import topic_span

        return topic_span(source, reading, period)

    def span_read(self, reading: Reading) -> SourceSpan:
        """Return the messages that a checkpoint has read."""
        from tidemill.connectors.kafka.span import span_read

        return span_read(reading)

    def missing(self, source: KafkaSource, reading: Reading) -> tuple[str, ...]:
        """Return the partitions whose first messages are missing."""
        from tidemill.connectors.kafka.span import removed_messages

        return removed_messages(source, reading)

    def first_offsets(self, source: KafkaSource, target: "Target") -> Offsets:
        """Return the first offset of each partition."""
        from tidemill.connectors.kafka.backlog import offsets_now

        return offsets_now(source, target)[0]

    def now(self, source: KafkaSource, reading: Reading) -> Start:
        """Return the offsets after the last messages."""
        from tidemill.connectors.kafka.continuation import end_of_topics

        return end_of_topics(source, reading)

    def start_at(self, reading: Reading, wanted: Any) -> Start:
        """Return offsets by topic and partition."""
        position = TopicPosition.of(reading.offset)
        if position is None or not isinstance(wanted, Mapping):
            return super().start_at(reading, wanted)
        from tidemill.connectors.kafka.continuation import start_at

        return start_at(position, reading.name, wanted)

    def fits(self, source: KafkaSource, reading: Reading) -> bool:
        """Return whether the topics that were read are among those of the source."""
        position = TopicPosition.of(reading.offset)
        if position is None:
            return False
        declared = {*source.subscribe, *source.assign}
        return bool(source.subscribe_pattern) or position.partitions.keys() <= declared

    def has_read(self, reading: Reading) -> str:
        """Return the topics."""
        position = TopicPosition.of(reading.offset)
        return "" if position is None else f"the topics {', '.join(position.partitions)}"

    def continuation(
        self, source: KafkaSource, reading: Reading, now: Binding, *, from_beginning: bool
    ) -> Continuation | None:
        """Return the offsets in the new topics."""
        from tidemill.connectors.kafka.continuation import continue_in

        return continue_in(source, reading, now, from_beginning=from_beginning)

    def may_have_gaps(self, source: KafkaSource, target: "Target") -> bool:
        """Return whether a topic is compacted; raises as `expiry` does."""
        from tidemill.connectors.kafka.retention import topics_are_compacted

        return topics_are_compacted(source, source.cluster_in(target))

    def external(self, source: KafkaSource, target: "Target | None") -> Iterator[ExternalData]:
        """Yield the topics one by one."""
        if source.subscribe_pattern is not None:
            yield ExternalData(
                path=pattern_key(source.cluster, source.subscribe_pattern),
                kind="kafka",
                description=f"Kafka topics that match {source.subscribe_pattern} on {source.cluster}.",
                metadata={SOURCE: source.subscribe_pattern},
            )
        for topic in source.subscribe or source.assign:
            yield ExternalData(
                path=topic_key(source.cluster, topic),
                kind="kafka",
                description=f"Kafka topic {topic} on {source.cluster}.",
                metadata={SOURCE: topic},
            )

    def load(self, source: KafkaSource, context: SourceContext, name: str) -> "DataFrame":
        """Return a streaming DataFrame of Kafka's columns (Spark's Kafka guide, "Reading Data from Kafka")."""
        reader = context.spark.readStream.name(name)
        if source.max_records_per_batch:
            reader = reader.option("maxOffsetsPerTrigger", str(source.max_records_per_batch))
        return _loaded(reader, source, context.target)

    def load_again(
        self, source: KafkaSource, context: SourceContext, reading: Reading, end: SourceOffset
    ) -> "DataFrame | None":
        """Return the messages of a batch that the topics still have."""
        from tidemill.connectors.kafka.backlog import initial_offsets

        before, last = TopicPosition.of(reading.offset), TopicPosition.of(end)
        if before is None:
            before = initial_offsets(reading.checkpoint, reading.name)
        if before is None or last is None:
            return None
        starts = {
            topic: {str(number): before.by_partition.get((topic, number), EARLIEST) for number in numbers}
            for topic, numbers in last.partitions.items()
        }
        # With `subscribe`, Spark asks for the offsets of partitions that have been added since.
        assigned = {topic: list(numbers) for topic, numbers in last.partitions.items()}
        return (
            context.spark.read.format("kafka")
            .options(**source.cluster_in(context.target).spark_options())
            .options(**source.options)
            .option("includeHeaders", str(source.include_headers).lower())
            .option("assign", json.dumps(assigned))
            .option("startingOffsets", json.dumps(starts))
            .option("endingOffsets", str(end.raw))
            .option("failOnDataLoss", "false")
            .load()
        )

    def load_from(self, source: KafkaSource, context: SourceContext, offset: str) -> "DataFrame":
        """Return the messages from an offset on; a partition that is newer than the offset begins at its first one."""
        offsets = {
            topic: {int(number): at for number, at in numbers.items()}
            for topic, numbers in json.loads(offset).items()
        }
        return _loaded(context.spark.readStream, source.starting_at(offsets), context.target)


def _loaded(reader: "DataStreamReader", source: KafkaSource, target: "Target") -> "DataFrame":
    reader = (
        reader.format("kafka")
        .options(**source.cluster_in(target).spark_options())
        .options(**source.options)
        .option("startingOffsets", _starting_offsets(source, target))
        .option("includeHeaders", str(source.include_headers).lower())
    )
    if source.subscribe:
        reader = reader.option("subscribe", ",".join(source.subscribe))
    elif source.subscribe_pattern:
        reader = reader.option("subscribePattern", source.subscribe_pattern)
    else:
        reader = reader.option(
            "assign", json.dumps({topic: list(numbers) for topic, numbers in source.assign.items()})
        )
    return reader.load()


def _starting_offsets(source: KafkaSource, target: "Target") -> str:
    """Return the option `startingOffsets`, with all partitions, as Spark requires.

    Raises:
        TransientError: The cluster does not answer.
        TerminalError: It refuses this user, or has no such topic or partition.
    """
    from tidemill.connectors.kafka.declared_offsets import declared_offsets

    if isinstance(source.starting_offsets, str):
        return source.starting_offsets
    offsets = declared_offsets(source, source.starting_offsets, source.cluster_in(target))
    return json.dumps(
        {topic: {str(n): at for n, at in numbers.items()} for topic, numbers in offsets.items()}
    )

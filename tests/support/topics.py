"""Topics of a test's own, and what is in them."""

from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tidemill.target.target import KafkaCluster


def new_topic(broker, scratch):
    """A topic with two partitions, on the cluster of the target."""
    scratch.clusters["default"] = KafkaCluster(bootstrap=broker.bootstrap)
    name = f"t-{uuid4().hex[:8]}"
    broker.create_topic(name, partitions=2)
    return name


def messages(broker, topic):
    """All messages of a topic of one partition, as (key, value, headers, partition)."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test"})
    partitions = [
        TopicPartition(topic, number, 0)
        for number in AdminClient({"bootstrap.servers": broker.bootstrap})
        .list_topics(topic)
        .topics[topic]
        .partitions
    ]
    expected = sum(consumer.get_watermark_offsets(partition)[1] for partition in partitions)
    consumer.assign(partitions)
    received = []
    while len(received) < expected:
        (message,) = consumer.consume(1, timeout=30)
        received.append((message.key(), message.value(), dict(message.headers() or ()), message.partition()))
    consumer.close()
    return received

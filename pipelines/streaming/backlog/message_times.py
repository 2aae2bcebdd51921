"""The times of messages in Kafka: of the first unread one of each partition, and of the newest."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from pipelines.streaming.backlog.cluster import client_of
from pipelines.streaming.backlog.count import UnreadMessages

if TYPE_CHECKING:
    from pipelines.streaming.target import KafkaCluster

# An answer takes milliseconds. What is missing then, such as a message of an aborted transaction, stays unknown.
ANSWER_SECONDS = 2.0


def first_unread_ms(unread: UnreadMessages) -> list[int]:
    """Return the time of the first unread message of each partition, milliseconds since the epoch."""
    missing = set(unread.positions)
    times = []
    deadline = time.monotonic() + ANSWER_SECONDS
    with _consumer(unread.cluster) as consumer:
        consumer.assign(
            [TopicPartition(topic, number, at) for (topic, number), at in unread.positions.items()]
        )
        while missing and (left := deadline - time.monotonic()) > 0:
            message = consumer.poll(left)
            if message is None or message.error() is not None:
                continue
            partition = (str(message.topic()), message.partition() or 0)
            if partition in missing:
                missing.remove(partition)
                times.append(message.timestamp()[1])
                consumer.incremental_unassign([TopicPartition(*partition)])
    return [milliseconds for milliseconds in times if milliseconds > 0]


def newest_ms(unread: UnreadMessages) -> list[int]:
    """Return the newest time of each partition, milliseconds since the epoch.

    Raises:
        TransientError: The cluster does not answer.
        TerminalError: It refuses this user.
    """
    return client_of(unread.cluster).newest_times(unread.positions)


@contextmanager
def _consumer(cluster: "KafkaCluster") -> Iterator[Consumer]:
    """Yield a consumer that commits nothing and is in no group."""
    consumer = Consumer(
        {
            **cluster.client_config(),
            "group.id": "tidemill",  # librdkafka wants one; `assign` does not join it
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        yield consumer
    except KafkaException:
        return
    finally:
        consumer.close()

"""When the retention of a topic removes messages that a stream has not read (`retention.ms`)."""

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.connectors.answers import Expiry, milliseconds
from tidemill.connectors.kafka.backlog import partitions_of, topics_of
from tidemill.connectors.kafka.client import client_of
from tidemill.connectors.kafka.source import KafkaSource

if TYPE_CHECKING:
    from tidemill.connectors.kafka.position import TopicPosition
    from tidemill.target.target import KafkaCluster

_FOREVER_MS = 10**15


def topic_expiry(source: KafkaSource, position: "TopicPosition", cluster: "KafkaCluster") -> Expiry | None:
    """Return when the first unread message of a topic may be removed; None where nothing is unread or ever removed.

    Raises:
        TransientError: The cluster does not answer.
        TerminalError: It refuses this user, or a topic is missing.
    """
    client = client_of(cluster)
    topics = topics_of(source, client, cluster)
    if topics is None:
        return None
    begins, ends = client.offsets(partitions_of(source, topics, cluster), committed=False)
    read = position.by_partition
    unread = {
        partition: max(read.get(partition, 0), begins[partition])
        for partition, end in ends.items()
        if read.get(partition, 0) < end
    }
    settings = client.topic_settings({topic for topic, _ in unread})
    kept = {topic: _topic_retention(of) for topic, of in settings.items()}
    removed = {partition: at for partition, at in unread.items() if kept.get(partition[0]) is not None}
    expiries = []
    for (topic, number), written in client.timestamps(removed).items() if removed else ():
        retention = kept[topic]
        if retention is not None:
            what = f"offset {removed[topic, number]} of partition {number} of topic {topic!r} (retention.ms)"
            expiries.append(Expiry(written + milliseconds(retention), retention, what))
    return min(expiries, key=lambda expiry: expiry.at_ms, default=None)


def topics_are_compacted(source: KafkaSource, cluster: "KafkaCluster") -> bool:
    """Return whether a topic of a source may be compacted; raises as `topic_expiry` does.

    A topic whose settings this user may not describe, or that only Spark knows, may be.
    """
    client = client_of(cluster)
    topics = topics_of(source, client, cluster)
    settings = {} if topics is None else client.topic_settings(topics)
    return not settings or any("compact" in of.get("cleanup.policy", "compact") for of in settings.values())


def _topic_retention(settings: Mapping[str, str]) -> timedelta | None:
    """Return the retention of a topic; None where time removes no message."""
    milliseconds = int(settings.get("retention.ms", -1))
    deletes = "delete" in settings.get("cleanup.policy", "delete")
    limited = deletes and 0 <= milliseconds < _FOREVER_MS
    return timedelta(milliseconds=milliseconds) if limited else None

"""When the retention of a source removes data that a stream has not read.

Kafka removes messages that are older than `retention.ms`. A Delta table loses commits that are older than
`delta.logRetentionDuration`, and VACUUM removes files that a later commit has replaced, once they are older than
`delta.deletedFileRetentionDuration`. Files of a folder have no retention that could be known.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.connectors.kafka.source import KafkaSource
from tidemill.errors import DefinitionError
from tidemill.storage import delta_log
from tidemill.text.durations import parse_duration

if TYPE_CHECKING:
    from tidemill.connectors.delta.position import DeltaPosition
    from tidemill.connectors.kafka.position import TopicPosition
    from tidemill.target.target import KafkaCluster

LOG_RETENTION = ("delta.logRetentionDuration", timedelta(days=30))
FILE_RETENTION = ("delta.deletedFileRetentionDuration", timedelta(days=7))
_MAX_COMMITS = 1000
_FOREVER_MS = 10**15


@dataclass(frozen=True, slots=True)
class Expiry:
    """When unread data may be removed.

    Attributes:
        at_ms: The earliest time, milliseconds since the epoch.
        retention: The retention that removes it.
        what: What is removed, and by which setting; for people.
    """

    at_ms: int
    retention: timedelta
    what: str


def kafka_expiry(source: KafkaSource, position: "TopicPosition", cluster: "KafkaCluster") -> Expiry | None:
    """Return when the first unread message of a topic may be removed; None where nothing is unread or ever removed.

    Raises:
        TransientError: The cluster does not answer.
        TerminalError: It refuses this user, or a topic is missing.
    """
    # librdkafka is loaded only where a topic is read.
    from tidemill.connectors.kafka.backlog import partitions_of, topics_of
    from tidemill.connectors.kafka.client import client_of

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
            expiries.append(Expiry(written + _milliseconds(retention), retention, what))
    return min(expiries, key=lambda expiry: expiry.at_ms, default=None)


def topics_are_compacted(source: KafkaSource, cluster: "KafkaCluster") -> bool:
    """Return whether a topic of a source may be compacted; raises as `kafka_expiry` does.

    A topic whose settings this user may not describe, or that only Spark knows, may be.
    """
    # librdkafka is loaded only where a topic is read.
    from tidemill.connectors.kafka.backlog import topics_of
    from tidemill.connectors.kafka.client import client_of

    client = client_of(cluster)
    topics = topics_of(source, client, cluster)
    settings = {} if topics is None else client.topic_settings(topics)
    return not settings or any("compact" in of.get("cleanup.policy", "compact") for of in settings.values())


def table_expiry(folder: Path, position: "DeltaPosition", *, changes: bool) -> Expiry | None:
    """Return when the first unread commit of a table, or one of its files, may be removed; None if all is read.

    Args:
        folder: The table's folder.
        position: The reader's position.
        changes: Whether it reads the change data feed.
    """
    first = delta_log.read_commit(folder, position.version)
    table = delta_log.open_table(folder)
    if first is None or first.timestamp_ms is None or table is None:
        return None
    settings = table.metadata().configuration
    log, files = (_table_retention(settings, *setting) for setting in (LOG_RETENTION, FILE_RETENTION))
    expiries = [
        Expiry(first.timestamp_ms + _milliseconds(log), log, f"version {first.version} ({LOG_RETENTION[0]})")
    ]
    for version, removed_at in _removed_files(folder, position, changes=changes):
        what = f"a file of version {version}, by VACUUM ({FILE_RETENTION[0]})"
        expiries.append(Expiry(removed_at + _milliseconds(files), files, what))
    return min(expiries, key=lambda expiry: expiry.at_ms)


def _removed_files(folder: Path, position: "DeltaPosition", *, changes: bool) -> Iterator[tuple[int, int]]:
    """Yield the unread files that VACUUM may remove: the version that has the file, and since when it is unused.

    Files of the change data feed belong to no version of the table, so VACUUM removes them by their age.
    """
    added: dict[str, int] = {}
    for version in range(position.version, position.version + _MAX_COMMITS):
        actions = delta_log.read_actions(folder, version)
        if actions is None:
            return
        written = next((a["commitInfo"].get("timestamp") for a in actions if "commitInfo" in a), None)
        for action in actions:
            if "remove" in action:
                remove = action["remove"]
                if remove["path"] in added or position.is_starting:
                    at = remove.get("deletionTimestamp") or written
                    if at is not None:
                        yield added.get(remove["path"], position.version), int(at)
            elif "add" in action and action["add"].get("dataChange"):
                added[action["add"]["path"]] = version
            elif changes and "cdc" in action and written is not None:
                yield version, int(written)


def _table_retention(settings: Mapping[str, str], name: str, default: timedelta) -> timedelta:
    """Return a property of a table, such as `interval 30 days`; the default where only Delta could parse it."""
    value = settings.get(name, "").lower().removeprefix("interval ")
    try:
        return parse_duration(value, what=name) if value else default
    except DefinitionError:
        return default


def _topic_retention(settings: Mapping[str, str]) -> timedelta | None:
    """Return the retention of a topic; None where time removes no message."""
    milliseconds = int(settings.get("retention.ms", -1))
    deletes = "delete" in settings.get("cleanup.policy", "delete")
    limited = deletes and 0 <= milliseconds < _FOREVER_MS
    return timedelta(milliseconds=milliseconds) if limited else None


def _milliseconds(length: timedelta) -> int:
    return length // timedelta(milliseconds=1)

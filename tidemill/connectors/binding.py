"""The identity of what a source reads: a folder, or the topics of a Kafka cluster, however it is written.

A binding is plain data, recorded in the manifest. It is read once per run, without a JVM. Tables of Delta need
none, because their id is part of every offset.
"""

# `Path` resolves nothing here; `os` compares paths as strings, as Spark does.
# ruff: noqa: PTH100, PTH111

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemill.connectors.feed import Feed
from tidemill.connectors.files.backlog import Relocation, plain_path
from tidemill.connectors.files.source import FileSource
from tidemill.connectors.kafka.source import KafkaSource
from tidemill.definitions.source import Source
from tidemill.target.target import FolderBinding, KafkaCluster, Target, TopicBinding

Binding = Mapping[str, Any]


def binding_of(source: Source, target: Target) -> Binding | None:
    """Return what a source reads in a target; None for tables and for paths that only Spark can list.

    Raises:
        TransientError: The cluster does not answer.
        TerminalError: The cluster refuses this user, or has no such topic.
        ConfigurationError: The target does not bind the feed.
    """
    if isinstance(source, FileSource):
        return _folder(source.path, target)
    if isinstance(source, Feed) and isinstance(bound := target.binding(source.name), FolderBinding):
        return _folder(str(bound.path), target)
    if isinstance(source, Feed | KafkaSource):
        return _topics(*kafka_of(source, target))
    return None


def kafka_of(source: Source, target: Target) -> tuple[KafkaSource, KafkaCluster]:
    """Return what a source that reads Kafka subscribes to, and where.

    Raises:
        ConfigurationError: The target does not bind it.
        TypeError: It does not read Kafka.
    """
    if isinstance(source, KafkaSource):
        return source, target.cluster(source.cluster)
    if isinstance(source, Feed) and isinstance(bound := target.binding(source.name), TopicBinding):
        return KafkaSource(subscribe=(bound.topic,)), bound.cluster
    raise TypeError(f"{source!r} does not read Kafka")


def difference(recorded: Binding, now: Binding, *, strict: bool = True) -> str | None:
    """Return how a binding differs from the recorded one, as half a sentence; None where it is the same.

    Args:
        recorded: The binding that the checkpoint continues.
        now: The binding that the target gives.
        strict: Whether every recorded topic must be among those that are read.
    """
    if recorded["kind"] != now["kind"]:
        return f"reads {describe(now)}, and its checkpoint continues {describe(recorded)}"
    if recorded["kind"] == "folder":
        same = recorded["path"] == now["path"] or moved(recorded, now)
        return None if same else f"reads {describe(now)}, and its checkpoint continues {describe(recorded)}"
    if recorded["cluster_id"] != now["cluster_id"]:
        return f"reads {describe(now)}, and its checkpoint continues {describe(recorded)}"
    for topic, topic_id in recorded["topics"].items():
        if topic not in now["topics"]:
            if strict:
                return f"reads {describe(now)}, and its checkpoint continues {describe(recorded)}"
        elif None not in (topic_id, now["topics"][topic]) and topic_id != now["topics"][topic]:
            return (
                f"reads topic {topic!r} with the id {now['topics'][topic]}, and its checkpoint continues the "
                f"topic of that name with the id {topic_id}: it was deleted and recreated"
            )
    return None


def moved(recorded: Binding, now: Binding) -> bool:
    """Return whether a folder is at the same path as seen from the lake, and lake and folder have moved."""
    return (
        recorded["kind"] == now["kind"] == "folder"
        and recorded["path"] != now["path"]
        and recorded["from_lake"] is not None
        and recorded["from_lake"] == now["from_lake"]
    )


def relocation_of(recorded: Binding | None, now: Binding | None) -> Relocation | None:
    """Return where a source's log has its files and where they are now; None where they have not moved."""
    if recorded is None or now is None or not moved(recorded, now):
        return None
    return Relocation(recorded["path"], now["path"])


def describe(binding: Binding) -> str:
    """Return a binding for people."""
    if binding["kind"] == "folder":
        return f"the folder {binding['path']}"
    topics = ", ".join(sorted(binding["topics"])) or "no topic"
    return f"{topics} of the Kafka cluster {binding['cluster_id']}"


def _folder(path: str, target: Target) -> Binding | None:
    plain = plain_path(path)
    if "://" in plain:
        return {"kind": "folder", "path": path, "from_lake": None}
    absolute = os.path.abspath(os.path.expanduser(plain))
    beside = Path(absolute).is_relative_to(target.lake.root.parent)
    return {
        "kind": "folder",
        "path": absolute,
        "from_lake": os.path.relpath(absolute, target.lake.root) if beside else None,
    }


def _topics(source: KafkaSource, cluster: KafkaCluster) -> Binding | None:
    # librdkafka is loaded only where a topic is read.
    from tidemill.connectors.kafka.backlog import topics_of
    from tidemill.connectors.kafka.client import client_of

    client = client_of(cluster)
    topics = topics_of(source, client, cluster)
    if topics is None:
        return None
    return {
        "kind": "kafka",
        "cluster_id": client.cluster_id(),
        "topics": {name: topic.topic_id for name, topic in sorted(topics.items())},
    }

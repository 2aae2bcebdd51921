"""The offsets at which the first run of a source begins, where its declaration names some of them."""

from collections.abc import Mapping

from tidemill.connectors.kafka.backlog import partitions_of, topics_of
from tidemill.connectors.kafka.client import client_of
from tidemill.connectors.kafka.source import EARLIEST, KafkaSource
from tidemill.errors import TerminalError
from tidemill.target.target import KafkaCluster


def declared_offsets(
    source: KafkaSource, declared: Mapping[str, Mapping[int, int]], cluster: KafkaCluster
) -> dict[str, dict[int, int]]:
    """Return an offset for each partition of a source: the declared one, or the first.

    Raises:
        TransientError: The cluster does not answer.
        TerminalError: It refuses this user, or has no such topic or partition.
    """
    topics = topics_of(source, client_of(cluster), cluster)
    offsets = {topic: dict(numbers) for topic, numbers in declared.items()}
    if topics is None:  # only Spark knows what the pattern matches
        return offsets
    present = partitions_of(source, topics, cluster)
    for topic, numbers in offsets.items():
        for number in numbers:
            if (topic, number) not in present:
                raise TerminalError(
                    f"starting_offsets has partition {number} of topic {topic!r}, which the source does not read on "
                    f"the Kafka cluster {cluster.bootstrap}.",
                    fix="correct starting_offsets= of the source.",
                    code="kafka-partition-missing",
                )
    for topic, number in present:
        offsets.setdefault(topic, {}).setdefault(number, EARLIEST)
    return offsets

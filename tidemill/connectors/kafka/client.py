"""One connection per Kafka cluster and process: the topics, and where they begin and end."""

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]  # its __all__ is short

from tidemill.errors import ConfigurationError, TerminalError, TidemillError, TransientError
from tidemill.target.target import KafkaCluster

Partition = tuple[str, int]

# A broker on another continent that is electing a leader answers within a few seconds; a schedule retries, so
# there is no use in waiting longer.
ANSWER_SECONDS = 8.0
# The streams that follow in the same tick do not wait for the same dead cluster again.
REMEMBER_SECONDS = 5.0
POLL_SECONDS = 0.02
ELECTION_SECONDS = 0.2
FETCH_BYTES = 1024  # the first message of a partition comes whole, whatever its size
# This module's deadline comes first: it knows why there is no answer.
_CLIENT_SECONDS = ANSWER_SECONDS + 1

_REFUSED = {
    KafkaError._AUTHENTICATION: "refused the credentials",  # noqa: SLF001 - librdkafka's own codes begin so
    KafkaError._SSL: "could not agree on TLS",  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED: "refused the credentials",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "does not know the SASL mechanism",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "does not let this user describe the topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "does not let this user connect",
}
# A broker answers so during an election, or before it knows a new topic: client and broker learn of a leader and its
# epoch one after the other. Kafka calls all of these retriable; `KafkaError.retriable` does not know them.
_ELECTING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of a cluster.

    Attributes:
        partitions: The number of its partitions.
        topic_id: The id that it got when it was created; None where the broker does not give it.
    """

    partitions: int
    topic_id: str | None


def client_of(cluster: KafkaCluster) -> "Client":
    """Return the client of a cluster, one per process: a connection costs more than a request."""
    return _client(cluster, os.getpid())


@lru_cache(maxsize=32)
def _client(cluster: KafkaCluster, _process: int) -> "Client":  # a connection does not survive a fork
    return Client(cluster)


class Client:
    """A connection to a cluster.

    Raises:
        ConfigurationError: librdkafka refuses the settings, such as a missing CA file.
    """

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._lock = Lock()
        self._errors: list[KafkaError] = []
        self._failure: KafkaError | None = None
        self._failed_at = 0.0
        config: dict[str, Any] = {
            **cluster.client_config(),
            "client.id": "tidemill",
            "error_cb": self._errors.append,
            "log_level": 0,  # errors come through error_cb; librdkafka would print them as well
        }
        try:
            self._admin = AdminClient(config)
        except KafkaException as error:
            raise ConfigurationError(
                f"The settings of the Kafka cluster {cluster.bootstrap} are refused: "
                f"{self._without_secrets(error.args[0].str())}.",
                fix="correct the cluster in tidemill.toml.",
                code="kafka-settings-refused",
            ) from None

    def cluster_id(self) -> str:
        """Return the id that the cluster got when it was created; raise as `topics` does."""
        with self._asking():
            future = self._admin.describe_cluster(request_timeout=_CLIENT_SECONDS)
            self._settle([future])
        return str(self._result(future).cluster_id)

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Return the topics of these names; a missing one is left out.

        Raises:
            TransientError: The cluster does not answer.
            TerminalError: It refuses this user.
        """
        if not names:
            return {}
        with self._asking():
            # Unlike a request for its metadata, describing a topic never creates it.
            futures = self._admin.describe_topics(
                TopicCollection(list(names)), request_timeout=_CLIENT_SECONDS
            )
            self._settle(futures.values())
        described_topics = {}
        for name, future in futures.items():
            error = future.exception()
            if error is None or error.args[0].code() not in _ABSENT:
                description = self._result(future)
                described_topics[name] = Topic(len(description.partitions), _id(description.topic_id))
        return described_topics

    def all_topics(self) -> dict[str, int]:
        """Return the number of partitions of every topic that this user may see; raise as `topics` does."""
        with self._asking():
            topics = self._admin.list_topics(timeout=ANSWER_SECONDS).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def offsets(
        self, partitions: Iterable[Partition], *, committed: bool
    ) -> tuple[dict[Partition, int], dict[Partition, int]]:
        """Return the first offset of each partition, and the one after its last; raise as `topics` does.

        Args:
            committed: Whether the end is that of committed transactions.
        """
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        specs = (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
        first, end = self._listed(partitions, *specs, isolation_level=level)
        return first, end

    def offsets_at(self, partitions: Iterable[Partition], time_ms: int) -> dict[Partition, int]:
        """Return the first offset of each partition with a time or a later one; raise as `topics` does.

        A partition without such a message is left out.

        Args:
            time_ms: The time, milliseconds since the epoch.
        """
        # A negative time stands for one of the ends.
        (offsets,) = self._listed(partitions, OffsetSpec.for_timestamp(max(time_ms, 0)))
        return {partition: offset for partition, offset in offsets.items() if offset >= 0}

    def newest_times(self, partitions: Iterable[Partition]) -> list[int]:
        """Return the newest time of a message of each partition that has one; raise as `topics` does.

        Times are milliseconds since the epoch.
        """
        asked = [TopicPartition(topic, number) for topic, number in partitions]
        if not asked:
            return []
        with self._asking():
            futures = self._admin.list_offsets(
                {partition: OffsetSpec.max_timestamp() for partition in asked},  # type: ignore[no-untyped-call]
                request_timeout=_CLIENT_SECONDS,
            )
            self._settle(futures.values())
        times = [int(self._result(future).timestamp) for future in futures.values()]
        return [milliseconds for milliseconds in times if milliseconds > 0]

    def topic_settings(self, names: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the settings of topics by name, such as `retention.ms`; raise as `topics` does.

        A topic whose settings this user may not describe is left out.
        """
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        with self._asking():
            futures = self._admin.describe_configs(resources, request_timeout=_CLIENT_SECONDS)
            self._settle(futures.values())
        return {
            resource.name: {name: entry.value for name, entry in future.result().items()}
            for resource, future in futures.items()
            if future.exception() is None
        }

    def creates_topics(self) -> bool:
        """Return whether a message to a missing topic creates it; False where this user may not know it."""
        with self._asking():
            brokers = self._admin.list_topics(timeout=ANSWER_SECONDS).brokers
        resource = ConfigResource(ResourceType.BROKER, str(next(iter(brokers))))
        with self._asking():
            (future,) = self._admin.describe_configs([resource], request_timeout=_CLIENT_SECONDS).values()
            self._settle([future])
        if future.exception() is not None:
            return False
        entry = future.result().get("auto.create.topics.enable")
        return entry is not None and entry.value == "true"

    def timestamps(self, positions: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return the time of the first message at or after each position, milliseconds since the epoch.

        A partition that does not answer in time, or has no such message, is left out.
        """
        config: dict[str, Any] = {
            **self._cluster.client_config(),
            "client.id": "tidemill",
            "group.id": "tidemill",  # librdkafka demands one; partitions are assigned and nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": FETCH_BYTES,
            "log_level": 0,
        }
        times: dict[Partition, int] = {}
        waiting = set(positions)
        consumer = Consumer(config)
        try:
            consumer.assign([TopicPartition(topic, number, at) for (topic, number), at in positions.items()])
            deadline = time.monotonic() + ANSWER_SECONDS
            while waiting and time.monotonic() < deadline:
                message = consumer.poll(ELECTION_SECONDS)
                if message is None or message.topic() is None:
                    continue
                partition = (str(message.topic()), int(message.partition() or 0))
                if message.error() is None and partition in waiting:
                    times[partition] = message.timestamp()[1]
                waiting.discard(partition)
        finally:
            consumer.close()
        return times

    def _listed(
        self, partitions: Iterable[Partition], *specs: OffsetSpec, **options: Any
    ) -> list[dict[Partition, int]]:
        """Return the offsets of partitions for each spec; a partition whose leader is elected is asked again."""
        asked = [TopicPartition(topic, number) for topic, number in partitions]
        if not asked:
            return [{} for _ in specs]
        with self._asking():
            deadline = time.monotonic() + ANSWER_SECONDS
            while True:
                listed = [
                    self._admin.list_offsets(
                        dict.fromkeys(asked, spec), request_timeout=_CLIENT_SECONDS, **options
                    )
                    for spec in specs
                ]
                answers = [future for futures in listed for future in futures.values()]
                self._settle(answers)
                if time.monotonic() > deadline or not any(map(_without_leader, answers)):
                    break
                time.sleep(ELECTION_SECONDS)
        return [
            {(at.topic, at.partition): self._result(future).offset for at, future in futures.items()}
            for futures in listed
        ]

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Send one request at a time; translate a failure, and remember it for the streams that follow."""
        with self._lock:
            if self._failure is not None and time.monotonic() - self._failed_at < REMEMBER_SECONDS:
                raise self._failed(self._failure)
            self._failure = None
            self._errors.clear()
            try:
                yield
            except KafkaException as error:
                self._admin.poll(0)
                self._failure, self._failed_at = error.args[0], time.monotonic()
                raise self._failed(error.args[0]) from None

    def _settle(self, futures: Collection[Future[Any]]) -> None:
        """Wait for all answers, but no longer once the cluster has refused this user."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while not all(future.done() for future in futures):
            wait(futures, timeout=POLL_SECONDS)
            self._admin.poll(0)
            refused = next((error for error in self._errors if error.code() in _REFUSED), None)
            if refused is not None or time.monotonic() > deadline:
                raise KafkaException(refused or KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001

    def _result(self, future: Future[Any]) -> Any:
        try:
            return future.result()
        except KafkaException as error:
            raise self._failed(error.args[0]) from None

    def _failed(self, error: KafkaError) -> TidemillError:
        where = f"the Kafka cluster {self._cluster.bootstrap}"
        refused = next((known for known in (*self._errors, error) if known.code() in _REFUSED), None)
        if refused is not None:
            return TerminalError(
                f"{where} {_REFUSED[refused.code()]}: {self._without_secrets(refused.str())}.",
                fix="correct the cluster in tidemill.toml, or the variables that it names.",
                code="kafka-access-refused",
            )
        reason = self._errors[-1] if self._errors else error
        return TransientError(
            f"{where} does not answer: {self._without_secrets(reason.str())}.", code="kafka-not-reachable"
        )

    def _without_secrets(self, text: str) -> str:
        password = self._cluster.client_config().get("sasl.password")
        return text.replace(password, "********") if password else text


def _without_leader(answer: Future[Any]) -> bool:
    error = answer.exception()
    return isinstance(error, KafkaException) and error.args[0].code() in _ELECTING


def _id(topic_id: Any) -> str | None:  # confluent_kafka has no types for a Uuid
    known = topic_id.get_most_significant_bits() or topic_id.get_least_significant_bits()
    return str(topic_id) if known else None

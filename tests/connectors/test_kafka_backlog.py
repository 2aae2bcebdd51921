"""What waits in Kafka, on a real broker: all that a checkpoint's offsets can run into."""

import json
import socket
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.raising import raises
from tidemill.checkpoint import SourceOffset
from tidemill.connectors.kafka import client as subject
from tidemill.connectors.kafka.backlog import waiting_messages
from tidemill.connectors.kafka.client import Client
from tidemill.connectors.kafka.source import KafkaSource
from tidemill.engines.dev.broker import Broker, Credentials
from tidemill.errors import DataLossError
from tidemill.target.target import KafkaCluster

pytestmark = pytest.mark.kafka
RIGHT = Credentials("reader", "correct-horse")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(RIGHT) as started:
        yield started


@pytest.fixture
def topic(broker) -> str:
    """A topic with 2 partitions and 4 messages."""
    name = f"clicks-{uuid4().hex[:8]}"
    broker.create_topic(name, 2)
    send(broker, name, 0, 3)
    send(broker, name, 1, 1)
    return name


def send(broker: Broker, topic: str, partition: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=partition)
    assert producer.flush(20) == 0


def deleted(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result()
    deadline = time.monotonic() + 20
    while topic in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline, "the topic does not go away"


def expired(broker: Broker, topic: str, partition: int, before: int) -> None:
    """Removes messages as retention would."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    end = TopicPartition(topic, partition, before)
    admin.delete_records([end])[end].result()


def at(**topics: dict[int, int]) -> SourceOffset:
    text = json.dumps({t.replace("_", "-"): {str(p): o for p, o in of.items()} for t, of in topics.items()})
    return SourceOffset.parse("", "events", None, text)


def read_to(topic: str, *offsets: int) -> SourceOffset:
    return at(**{topic.replace("-", "_"): dict(enumerate(offsets))})


def waiting(broker: Broker, source: KafkaSource | str, offset: SourceOffset | None = None):
    source = KafkaSource(subscribe=(source,)) if isinstance(source, str) else source
    return waiting_messages(source, offset, KafkaCluster(bootstrap=broker.bootstrap))


def test_every_message_waits_before_the_first_batch(broker, topic):
    backlog = waiting(broker, topic)

    assert (backlog.count, backlog.unit) == (4, "messages")
    assert backlog.detail == f"{topic}-0: 3, {topic}-1: 1"


def test_messages_beyond_the_offsets_wait(broker, topic):
    assert waiting(broker, topic, read_to(topic, 1, 1)).count == 2
    assert not waiting(broker, topic, read_to(topic, 3, 1))

    send(broker, topic, 1, 5)
    assert waiting(broker, topic, read_to(topic, 3, 1)).count == 5


def test_a_partition_that_came_later_is_read_from_its_start(broker, topic):
    assert waiting(broker, topic, read_to(topic, 3)).count == 1


def test_assigned_partitions_only(broker, topic):
    assert waiting(broker, KafkaSource(assign={topic: (0,)})).count == 3

    with raises("kafka-partition-missing", "partition 7", "0 to 1"):
        waiting(broker, KafkaSource(assign={topic: (0, 7)}))


def test_a_pattern(broker, topic):
    assert waiting(broker, KafkaSource(subscribe_pattern=f"{topic[:-1]}.")).count == 4
    assert waiting(broker, KafkaSource(subscribe_pattern="none.*")).count == 0
    # Possibly something: only Java knows what this matches.
    assert waiting(broker, KafkaSource(subscribe_pattern=r"\p{Lower}+"))


@pytest.mark.parametrize(
    ("start", "count"), [("latest", 0), ("earliest", 4), ({0: 1, 1: -1}, 2), ({0: -2, 1: 0}, 4)]
)
def test_where_a_source_without_offsets_begins(broker, topic, start, count):
    start = {topic: start} if isinstance(start, dict) else start

    assert waiting(broker, KafkaSource(subscribe=(topic,), starting_offsets=start)).count == count


def test_a_missing_topic_names_topic_and_cluster(broker):
    with raises("kafka-topic-missing", "'missing'", broker.bootstrap):
        waiting(broker, "missing")
    with raises("kafka-topic-missing"):  # and looking has not created it
        waiting(broker, "missing")


def test_a_topic_made_anew_with_fewer_messages(broker, topic):
    deleted(broker, topic)
    broker.create_topic(topic, 2)
    send(broker, topic, 0, 1)

    with pytest.raises(DataLossError) as caught:
        waiting(broker, topic, read_to(topic, 3, 1))

    assert f"partition 0 of topic '{topic}'" in caught.value.what
    assert "Offsets 1 to 2 are missing" in caught.value.lost
    tolerant = KafkaSource(subscribe=(topic,), options={"failOnDataLoss": "false"})
    assert waiting(broker, tolerant, read_to(topic, 3, 1)).count == 1


def test_a_topic_made_anew_with_fewer_partitions(broker, topic):
    deleted(broker, topic)
    broker.create_topic(topic, 1)

    with raises("kafka-offsets-missing", "partition 1", "offset 1"):
        waiting(broker, topic, read_to(topic, 0, 1))


def test_messages_that_retention_removed_are_named(broker, topic):
    expired(broker, topic, 0, before=2)

    with raises("kafka-offsets-missing", "Offsets 1 to 1 (at most 1 message)"):
        waiting(broker, topic, read_to(topic, 1, 1))
    assert waiting(broker, topic, read_to(topic, 2, 1)).count == 1
    assert waiting(broker, topic).count == 2  # nothing is lost to a stream that begins


def test_a_broker_that_is_down_is_transient_and_remembered():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        cluster = KafkaCluster(bootstrap=f"127.0.0.1:{unused.getsockname()[1]}")
        seconds = []
        for _ in range(3):
            began = time.monotonic()
            with raises("kafka-not-reachable", cluster.bootstrap):
                waiting_messages(KafkaSource(subscribe=("clicks",)), None, cluster)
            seconds.append(time.monotonic() - began)

    assert seconds[0] < 15
    assert max(seconds[1:]) < 0.5


def without_leader(
    partitions: Iterable[TopicPartition], code: int = KafkaError.NOT_LEADER_FOR_PARTITION
) -> dict[TopicPartition, Future[object]]:
    answers = {partition: Future[object]() for partition in partitions}
    for answer in answers.values():
        answer.set_exception(KafkaException(KafkaError(code)))
    return answers


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    ],
)
def test_an_election_is_waited_for(broker, topic, monkeypatch, code):
    """An election is not available on demand; the answers around it are the broker's own."""
    client = Client(KafkaCluster(bootstrap=broker.bootstrap))
    ask, asked = client._admin.list_offsets, []

    def electing_at_first(partitions, **how):
        asked.append(partitions)
        return without_leader(partitions, code) if len(asked) <= 3 else ask(partitions, **how)

    monkeypatch.setattr(client._admin, "list_offsets", electing_at_first)
    assert client.offsets([(topic, 0), (topic, 1)], committed=False)[1] == {(topic, 0): 3, (topic, 1): 1}
    assert len(asked) == 6  # the second look had one answer of two


def test_an_election_without_an_end_is_transient(broker, topic, monkeypatch):
    client = Client(KafkaCluster(bootstrap=broker.bootstrap))
    monkeypatch.setattr(subject, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(client._admin, "list_offsets", lambda partitions, **_: without_leader(partitions))
    with raises("kafka-not-reachable", "Not leader for partition"):
        client.offsets([(topic, 0)], committed=False)


def sasl(broker: Broker, password: str, **settings: str) -> KafkaCluster:
    return KafkaCluster(
        **{
            "bootstrap": broker.sasl_bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "username": RIGHT.user,
            "password": password,
            **settings,
        }
    )


def test_right_credentials(broker, topic):
    source = KafkaSource(subscribe=(topic,))

    assert waiting_messages(source, None, sasl(broker, RIGHT.password)).count == 4


def test_wrong_credentials_are_terminal_at_once_and_not_shown(broker, topic):
    began = time.monotonic()
    with raises("kafka-access-refused") as caught:
        waiting_messages(KafkaSource(subscribe=(topic,)), None, sasl(broker, "wrong-horse"))

    assert time.monotonic() - began < 5
    assert "wrong-horse" not in str(caught.value)
    assert broker.sasl_bootstrap in str(caught.value)


def test_a_mechanism_that_the_broker_does_not_know(broker, topic):
    cluster = sasl(broker, RIGHT.password, sasl_mechanism="SCRAM-SHA-512")

    with raises("kafka-access-refused", "mechanism"):
        waiting_messages(KafkaSource(subscribe=(topic,)), None, cluster)


def test_settings_that_the_client_refuses(tmp_path):
    cluster = KafkaCluster(bootstrap="b:1", security_protocol="SSL", ca_file=str(tmp_path / "gone.pem"))

    with raises("kafka-settings-refused", "b:1", "ssl.ca"):
        waiting_messages(KafkaSource(subscribe=("clicks",)), None, cluster)


def test_a_look_is_cheap(broker, topic):
    source, offset = KafkaSource(subscribe=(topic,)), read_to(topic, 3, 1)
    waiting(broker, source, offset)

    began = time.monotonic()
    for _ in range(9):
        waiting(broker, source, offset)

    assert time.monotonic() - began < 0.5

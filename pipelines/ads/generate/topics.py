"""Send events as messages to Kafka topics."""

from typing import TYPE_CHECKING

from pipelines.ads.generate.amounts import Amounts, Tally
from pipelines.ads.generate.arrivals import LATE_IMPRESSIONS, arrivals
from pipelines.ads.generate.records import FEEDS, Record
from tidemill.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import KafkaError, Message, Producer

    DeliveryCallback = Callable[[KafkaError | None, Message], None]

ALERTS_TOPIC = "ad-frequency-alerts"
"""The topic for the alerts, in which nothing is generated."""
PARTITIONS = 4
_DEADLINE_S = 20


def produce(
    *, bootstrap: str, events: int, seed: int, start: int = 0, late: int = LATE_IMPRESSIONS
) -> Amounts:
    """Send events to the topics of the feeds; a missing topic, and that for alerts, is created with 4 partitions.

    The key of a message is the impression's id, or the ad's id for campaigns, so that the changes of one ad
    stay in order.

    Args:
        bootstrap: The brokers, as comma-separated `host:port`.
        events: The number of indices to send, at least 1.
        seed: The seed of the sequence.
        start: The first index; the `next_start` of the previous call continues the sequence.
        late: The number of late impressions in this call; ignored with `start` 0.

    Raises:
        ConfigurationError: A number is out of its range.
        TransientError: No broker answers, or it did not accept every message.
    """
    from confluent_kafka import Producer

    arriving = arrivals(events=events, seed=seed, start=start, late=late)
    _create_topics(bootstrap)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,  # a message that is resent after an error is stored once
            "linger.ms": 20,
            "message.timeout.ms": _DEADLINE_S * 1000,
        }
    )
    refused: list[str] = []

    def delivered(error: "KafkaError | None", message: "Message") -> None:
        if error is not None:
            refused.append(f"{message.topic()}: {error.str()}")

    tally = Tally()
    for _, record in arriving:
        tally.add(record)
        _send(producer, record, delivered)
    unsent = producer.flush(_DEADLINE_S)
    if refused or unsent:
        raise TransientError(
            f"demo generate: Kafka at {bootstrap} did not accept {len(refused) + unsent} of "
            f"{tally.amounts(seed=seed, start=start, events=events).records} messages "
            f"({refused[0] if refused else 'no answer'}).",
            lost="The topics contain only a part of these events.",
            fix="Check the broker, then generate the events into new topics.",
            code="demo-not-sent",
        )
    return tally.amounts(seed=seed, start=start, events=events)


def _create_topics(bootstrap: str) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics(
        [NewTopic(name, num_partitions=PARTITIONS) for name in (*FEEDS, ALERTS_TOPIC)],
        operation_timeout=_DEADLINE_S,
        request_timeout=_DEADLINE_S,
    )
    for name, topic in created.items():
        try:
            topic.result()
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TransientError(
                    f"demo generate: Kafka at {bootstrap} did not create the topic {name}: {reason.str()}.",
                    lost="Nothing was sent.",
                    fix="Check the address and that the broker is running, then generate the events again.",
                    code="demo-not-sent",
                ) from error


def _send(producer: "Producer", record: Record, delivered: "DeliveryCallback") -> None:
    while True:
        try:
            producer.produce(record.feed, value=record.text, key=record.key, on_delivery=delivered)
        except BufferError:  # the queue is full: delivery reports make room in it
            producer.poll(1)
        else:
            producer.poll(0)
            return

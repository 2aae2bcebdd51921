"""The topic of a feed on a real broker, and what has been sent to it."""

import time
from collections.abc import Callable
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tidemill.engines.dev.broker import Broker
from tidemill.target.target import KafkaCluster, TopicBinding

DEADLINE = 30


class Topics:
    """One topic at a time.

    Args:
        broker: A running broker.

    Attributes:
        messages: What the topic has, in order; always the same list.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._name = ""
        self.messages: list[str] = []
        self._create(f"t-{uuid4().hex[:8]}")

    @property
    def binding(self) -> TopicBinding:
        """The topic as the target binds it."""
        return TopicBinding(KafkaCluster(bootstrap=self._broker.bootstrap), self._name)

    def _create(self, name: str) -> None:
        self._name = name
        self._broker.create_topic(name, partitions=1)

    def send(self, lines: list[str]) -> None:
        """Send a message per line.

        Raises:
            TimeoutError: The broker does not take them.
        """
        producer = Producer({"bootstrap.servers": self._broker.bootstrap})
        for line in lines:
            producer.produce(self._name, value=line)
        if producer.flush(DEADLINE):
            raise TimeoutError("the broker does not take messages")
        self.messages += lines

    def recreate(self) -> None:
        """Delete the topic and create it again.

        Raises:
            TimeoutError: The topic does not go away.
        """
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap})
        admin.delete_topics([self._name])[self._name].result()
        deadline = time.monotonic() + DEADLINE
        while self._name in admin.list_topics(timeout=10).topics:
            if time.monotonic() > deadline:
                raise TimeoutError("the topic does not go away")
        self.messages.clear()
        self._create(self._name)

    def copy(self) -> Callable[[], None]:
        """Create another topic with the same messages; return how the old one is bound again."""
        old, messages = self._name, list(self.messages)
        self.messages.clear()
        self._create(f"t-{uuid4().hex[:8]}")
        self.send(messages)

        def undo() -> None:
            self._name = old
            self.messages[:] = messages

        return undo

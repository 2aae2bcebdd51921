"""Rows of the table: a real broker, as a source and as a sink."""

from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.conformance import gallery
from tests.conformance.as_written import assert_refused, run_arguments
from tests.conformance.test_operations import VIEWS, views_of
from tests.run.test_follow import followed, until
from tests.run.test_modes import refusal
from tests.support.checked import failed_checks
from tests.support.raising import raises
from tests.support.topics import messages, new_topic
from tidemill import DeltaAppend, KafkaSink, KafkaSource, Pipeline
from tidemill import functions as F
from tidemill.records.stream_records import StreamRecords
from tidemill.testing import multiset

pytestmark = [pytest.mark.kafka, pytest.mark.campaign]


@pytest.fixture
def topic(broker, scratch):
    return new_topic(broker, scratch)


def send(broker, topic, *values, partition=0):
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(
            topic, key=f"k{value}", value=value, partition=partition, headers=[("h", value.encode())]
        )
    assert producer.flush(30) == 0


def copied(source, name="copied"):
    return Pipeline("shop").stream(source={"messages": source}, sink=DeltaAppend(), name=name)(
        lambda messages: messages.select(F.col("value").cast("string"))
    )


@pytest.mark.parametrize("how", ["subscribe", "subscribe_pattern", "assign"])
def test_src_kafka_sub(scratch, broker, topic, how):
    stream = copied(gallery.src_kafka_sub(topic)[how])
    for value in "abc":
        send(broker, topic, value, partition=value == "b")
        scratch.run(stream)
    assert scratch.rows(stream) == multiset("abc")


def test_src_kafka_start(scratch, broker, topic):
    send(broker, topic, "a", "b")
    send(broker, topic, "c", partition=1)
    milliseconds = str(int((datetime.now(UTC).timestamp() + 3600) * 1000))
    sources = gallery.src_kafka_start(topic)
    by_time = copied(sources.pop("by_time"), "by_time")
    streams = {name: copied(source, name) for name, source in sources.items()}
    for stream in streams.values():
        scratch.run(stream)
    send(broker, topic, "d")
    expected = {"earliest": "abcd", "latest": "d", "by_partition": "bcd"}
    for name, stream in streams.items():
        scratch.run(stream)
        assert scratch.rows(stream) == multiset(expected[name]), name
    scratch.run(by_time)
    assert scratch.rows(by_time) == multiset("abcd")
    options = {"startingTimestamp": milliseconds, "startingOffsetsByTimestampStrategy": "latest"}
    none = copied(KafkaSource(subscribe=topic, options=options), "none")
    scratch.run(none)
    send(broker, topic, "e")
    scratch.run(none)
    assert scratch.rows(none) == multiset("e")


def test_src_kafka_rate(scratch, broker, topic):
    send(broker, topic, *"abcde")
    stream = copied(gallery.src_kafka_rate(topic))
    [result] = scratch.run(stream)
    assert [batch.rows_read for batch in result.batches] == [2, 2, 1]
    assert scratch.rows(stream) == multiset("abcde")
    assert_refused("option-not-allowed", gallery.src_kafka_rate_min, topic)


def test_src_kafka_meta(scratch, broker, topic):
    @Pipeline("shop").stream(
        source={"messages": KafkaSource(subscribe=topic, include_headers=True)}, sink=DeltaAppend()
    )
    def src_kafka_meta(messages):
        """Everything about a message."""
        strings = [F.col(name).cast("string").alias(name) for name in ("key", "value")]
        header = F.col("headers")[0]["value"].cast("string").alias("header")
        return messages.select(
            *strings, "topic", "partition", "offset", F.col("timestamp").isNotNull().alias("t"), header
        )

    for value in "ab":
        send(broker, topic, value, partition=1)
        scratch.run(src_kafka_meta)
    expected = [(f"k{value}", value, topic, 1, n, True, value) for n, value in enumerate("ab")]
    assert scratch.rows(src_kafka_meta) == multiset(expected)


def test_src_kafka_newpart(scratch, broker, topic):
    stream = copied(gallery.src_kafka_newpart(topic))
    send(broker, topic, "a")
    scratch.run(stream)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    while len(admin.list_topics(topic).topics[topic].partitions) < 3:
        pass
    send(broker, topic, "b", "c", partition=2)
    scratch.run(stream)
    assert scratch.rows(stream) == multiset("abc")
    admin.delete_topics([topic])[topic].result()
    with raises("kafka-topic-missing", topic):
        scratch.run(stream)
    assert scratch.rows(stream) == multiset("abc")


def test_sink_kafka(scratch, broker, topic):
    shop = Pipeline("shop")
    views = views_of(shop)

    @shop.stream(source={"views": views}, sink=KafkaSink(topic=topic))
    def sink_kafka(views):
        """Each row is a message."""
        return views.select(F.col("user").alias("key"), F.to_json(F.struct("n")).alias("value"))

    for arriving in VIEWS:
        scratch.run(views, [arriving])
        scratch.run(sink_kafka)
    sent = multiset((key.decode(), value.decode()) for key, value, _, _ in messages(broker, topic))
    assert sent == multiset((view["user"], f'{{"n":{view["n"]}}}') for run in VIEWS for view in run)


COMMANDS = [gallery.async_progress, gallery.trig_continuous, gallery.trig_realtime]


@pytest.mark.parametrize("command", COMMANDS, ids=[command.__name__ for command in COMMANDS])
def test_row(scratch, broker, topic, command):
    """It starts, runs and stops; an ordinary run continues behind it; and a query with state is refused."""
    results = new_topic(broker, scratch)
    shop = Pipeline("shop")

    @shop.stream(source={"messages": KafkaSource(subscribe=topic)}, sink=KafkaSink(topic=results))
    def doubled(messages):
        return messages.select(F.expr("string(2 * int(string(value))) AS value"))

    @shop.stream(source={"messages": KafkaSource(subscribe=topic)}, sink=KafkaSink(topic=results))
    def distinct(messages):
        return messages.select("value").dropDuplicates(["value"])

    def sent():
        return multiset(value.decode() for _, value, _, _ in messages(broker, results))

    send(broker, topic, "1")
    scratch.run(doubled)
    follow = run_arguments(command(), doubled)["follow"]
    with followed(scratch, doubled, mode=follow.mode, every=follow.every):
        send(broker, topic, "2", "3", partition=1)
        until(lambda: sent() == multiset("246"))
        records = StreamRecords(scratch.lake, doubled.name)
        until(lambda: sum(line.rows_read for line in records.ledger.lines()) == 3)
    send(broker, topic, "4")
    scratch.run(doubled)
    assert sent() == multiset("2468")
    assert failed_checks(scratch, doubled) == []
    scratch.run(distinct)
    assert "keeps state" in refusal(scratch, distinct, follow.mode)

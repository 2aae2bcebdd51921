"""Rows as messages in a real topic: what they are, and what is refused."""

import json
import pickle
from collections import Counter

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType

from tests.sinks.streams import sales, sales_stream
from tests.support.raising import raises
from tests.support.topics import messages, new_topic
from tidemill import DeltaAppend, KafkaSink
from tidemill.definitions.sink import SinkContext
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.table_ref import TableRef
from tidemill.target.target import KafkaCluster
from tidemill.testing import multiset
from tidemill.text.secret import Secret

ARRIVALS = [[("a", 5), ("b", 3), ("a", 5)], [("c", 7)]]


def output_of(columns):
    """The columns of an output, without a JVM to parse them."""
    output = StructType()
    for name, kind in map(str.split, columns.split(", ")):
        output.add(name, {"STRING": StringType(), "BIGINT": LongType()}[kind])
    return output


def batches_of(received):
    """The rows of the messages by batch."""
    by_batch = {}
    for key, value, headers, _ in received:
        row = json.loads(value)
        assert key.decode() == row["shop"]
        by_batch.setdefault(headers["tidemill-batch"].decode(), []).append((row["shop"], row["amount"]))
    return {batch: multiset(rows) for batch, rows in by_batch.items()}


@pytest.fixture
def topic(broker, scratch):
    return new_topic(broker, scratch)


@pytest.mark.kafka
def test_messages_are_the_rows_of_the_table_with_their_batch(scratch, broker, topic):
    stream = sales_stream(KafkaSink(topic, key="shop", value="json"), DeltaAppend())
    scratch.run(stream, [sales(*rows) for rows in ARRIVALS])
    query_id = StreamRecords(scratch.lake, stream.name).snapshot().tail.query_id
    expected = {f"{query_id}/{number}": multiset(rows) for number, rows in enumerate(ARRIVALS)}
    assert batches_of(messages(broker, topic)) == expected
    assert scratch.rows(stream, "shop", "amount") == sum(expected.values(), Counter())
    assert {key for message in messages(broker, topic) for key in json.loads(message[1])} == {
        "shop",
        "amount",
    }
    assert stream.sinks[0].delivery == "at least once"


@pytest.mark.kafka
def test_the_columns_of_a_message_are_those_of_spark(scratch, broker, topic):
    def as_messages(sales):
        header = F.struct(F.lit("from").alias("key"), F.col("shop").cast("binary").alias("value"))
        return sales.select(
            F.lit(topic).alias("topic"),
            F.col("amount").cast("string").alias("value"),
            F.lit(1).alias("partition"),
            F.when(F.col("shop") == "a", F.array(header)).alias("headers"),
        )

    stream = sales_stream(KafkaSink(options={"kafka.compression.type": "gzip"}), function=as_messages)
    scratch.run(stream, [sales(("a", 5), ("b", 3))])
    received = {
        value: (key, headers, partition) for key, value, headers, partition in messages(broker, topic)
    }
    batch = received[b"5"][1].pop("tidemill-batch")
    assert received[b"5"] == (None, {"from": b"a"}, 1)
    assert received[b"3"] == (None, {"tidemill-batch": batch}, 1)


@pytest.mark.kafka
def test_a_missing_topic_is_refused_before_the_query_starts(scratch, topic):
    missing = f"{topic}-missing"
    stream = sales_stream(KafkaSink(missing, value="json"))
    with raises("sink-topic-missing", "shops/sales", missing, f"--create --topic {missing}"):
        scratch.run(stream, [sales(("a", 5))])
    assert not (scratch.checkpoint(stream.name) / "offsets").exists()


@pytest.mark.kafka
def test_a_topic_is_created_by_a_cluster_that_creates_topics(topic, scratch, monkeypatch):
    monkeypatch.setattr("tidemill.connectors.kafka.client.Client.creates_topics", lambda _: True)
    context = SinkContext(TableRef.at("t"), scratch.clusters["default"])
    KafkaSink(f"{topic}-missing").check(context, output_of("value STRING"))


@pytest.mark.parametrize(
    ("sink", "output", "message"),
    [
        (KafkaSink("t"), "id STRING", "its output has no column 'value'"),
        (KafkaSink("t"), "value BIGINT", "its column 'value' is bigint"),
        (KafkaSink("t", key="id"), "value STRING", "no column 'id'"),
        (KafkaSink("t", value="json"), "key BIGINT, a STRING", "its column 'key' is bigint"),
        (KafkaSink(), "value STRING", "no column 'topic'"),
        (KafkaSink("t"), "value STRING, partition BIGINT", "its column 'partition' is bigint"),
        (KafkaSink("t"), "value STRING, headers STRING", "its column 'headers' is string"),
    ],
)
def test_an_output_that_is_no_message_is_refused(sink, output, message):
    with raises("sink-columns-unsuitable", message, "Fix: "):
        sink.check(SinkContext(TableRef.at("t")), output_of(output))


@pytest.mark.parametrize(
    ("declare", "code", "value"),
    [
        (lambda: KafkaSink("a,b"), "argument-invalid", "'a,b'"),
        (lambda: KafkaSink("t", value="avro"), "argument-invalid", "'avro'"),
        (lambda: KafkaSink("t", options={"topic": "u"}), "option-is-argument", "topic="),
        (lambda: KafkaSink("t", options={"kafka.bootstrap.servers": "x"}), "option-is-argument", "cluster="),
        (
            lambda: KafkaSink("t", options={"kafka.transactional.id": "x"}),
            "option-is-argument",
            "transactions",
        ),
        (lambda: KafkaSink("t", options={"kafka.sasl.jaas.config": "x"}), "option-not-allowed", "credential"),
        (lambda: KafkaSink("t", options={"kafka.acks": "1"}), "option-not-allowed", "acks"),
        (lambda: KafkaSink("t", options={"subscribe": "t"}), "option-not-known", "subscribe"),
        (lambda: KafkaSink("t", options={"kafka.linger.ms": 5}), "argument-invalid", "5"),
    ],
)
def test_a_sink_that_is_declared_wrongly_is_refused(declare, code, value):
    with raises(code, value):
        declare()


def test_what_is_shipped_names_the_password_and_does_not_hold_it(scratch, monkeypatch):
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    secret = Secret("${KAFKA_PASSWORD}", "password")
    scratch.clusters["default"] = KafkaCluster("b:9092", "SASL_SSL", "PLAIN", username="me", password=secret)
    connection = KafkaSink("t").connection(scratch.target)
    assert b"hunter2" not in pickle.dumps(connection)
    assert 'password="hunter2"' in connection.producer_options()["kafka.sasl.jaas.config"]
    assert "kafka.isolation.level" not in connection.producer_options()

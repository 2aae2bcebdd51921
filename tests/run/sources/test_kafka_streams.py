"""Streams over a real broker: feeds in topics, tombstones, and named sources of every kind side by side."""

import inspect
import json
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)
from pyspark.sql import functions as F

from tests.support.raising import raises
from tidemill import Checks, DeltaAppend, Feed, FileSource, Json, KafkaSource, Pipeline, Raw
from tidemill.checks.evaluation import evaluate
from tidemill.connectors.connector import Reading, SourceContext
from tidemill.connectors.registry import backlog_of
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.watermark import newest_events
from tidemill.run.spark.engine import session_of
from tidemill.target.target import KafkaCluster, TopicBinding
from tidemill.testing import multiset

pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(broker):
    """A topic of the test's own, with four partitions."""
    name = f"t-{uuid4().hex[:8]}"
    broker.create_topic(name, partitions=4)
    return name


def send(broker, topic, *messages):
    """Sends (key, value) pairs and waits until the broker has them."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key, value in messages:
        producer.produce(topic, key=key, value=value)
    assert producer.flush(30) == 0


def test_a_topic_is_read_once_and_its_tombstones_are_data(scratch, broker, topic):
    cluster = KafkaCluster(bootstrap=broker.bootstrap)
    scratch.bindings["orders"] = TopicBinding(cluster, topic)
    shop = Pipeline("shop")
    feed = Feed("orders", format=Json("id STRING"), max_records_per_batch=2)
    orders = shop.stream(source=feed, sink=DeltaAppend(), name="orders")(
        lambda events: events.withColumn("key", F.col("_origin.key"))
    )
    send(broker, topic, *[(f"k{n}", json.dumps({"id": f"o{n}"})) for n in range(5)], ("k9", None))
    first = scratch.run(orders)[0]
    send(broker, topic, ("k5", json.dumps({"id": "o5"})), ("k6", "{broken"))
    scratch.run(orders)
    expected = [(f"o{n}", f"k{n}") for n in range(6)] + [(None, "k9")]
    assert scratch.rows(orders, "id", "key") == multiset(expected)
    assert scratch.quarantined(orders) == multiset([("{broken", ("unparsable",))])
    assert len(first.batches) >= 3, "at most two messages a batch"
    origins = Counter((dict(o[0])["topic"], dict(o[0])["partition"]) for o in scratch.rows(orders, "_origin"))
    assert {origin[0] for origin in origins} == {topic}


def test_the_checks_of_a_topic_count_its_offsets_and_forecast_its_retention(scratch, broker, topic):
    cluster = KafkaCluster(bootstrap=broker.bootstrap)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def configure(name, value):
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result()

    def check(name, now=None, **bounds):
        declared = replace(orders, checks=Checks(**bounds))
        (result,) = evaluate(declared, scratch.target, now or datetime.now(UTC), names=[name])
        return result

    configure("retention.ms", "3600000")
    scratch.bindings["orders"] = TopicBinding(cluster, topic)
    feed = Feed("orders", format=Json("id STRING"))
    orders = Pipeline("shop").stream(source=feed, sink=DeltaAppend(), name="orders")(lambda events: events)
    for count in (4, 3):
        send(broker, topic, *[(f"k{n}", json.dumps({"id": f"o{n}"})) for n in range(count)], ("k9", None))
        scratch.run(orders)
    assert check("exactly_once").passed
    assert check("backlog").numbers["retention_seconds_left"] is None

    send(broker, topic, ("k1", "{}"))
    waiting = check("backlog")
    assert (waiting.status, waiting.numbers["backlog_messages"]) == ("pass", 1)
    assert 3000 < waiting.numbers["retention_seconds_left"] <= 3600
    late = check("backlog", now=datetime.now(UTC) + timedelta(minutes=50))
    assert late.status == "error"
    assert f"of topic {topic!r} (retention.ms), which is unread" in late.summary

    (Path(scratch.lake.records(orders.name).uri()) / "checks.json").unlink()
    (path,) = (
        file
        for file in Path(scratch.lake.ledger(orders.name).uri()).glob("*.jsonl")
        if '"batch_id": 1' in file.read_text()
    )
    line = json.loads(path.read_text())
    path.write_text(json.dumps({**line, "rows_read": 3, "rows_out": None}) + "\n")
    assert "Batch 1 read 3 rows from a range of 4, and the range has more" in check("exactly_once").summary
    assert "from a range of" not in check("exactly_once", exact_offsets=False).summary
    configure("cleanup.policy", "compact")
    assert "from a range of" not in check("exactly_once").summary


@pytest.mark.parametrize(
    "how", ["subscribe", "subscribe_pattern", pytest.param("assign", marks=pytest.mark.campaign)]
)
def test_three_ways_to_name_what_is_read(scratch, broker, topic, how):
    scratch.clusters["default"] = KafkaCluster(bootstrap=broker.bootstrap)
    given = {"subscribe": topic, "subscribe_pattern": f"{topic[:-1]}.", "assign": {topic: (0, 1, 2, 3)}}
    source = KafkaSource(**{how: given[how]}, include_headers=True)
    stream = Pipeline("shop").stream(source=source, sink=DeltaAppend(), name="messages")(
        lambda messages: messages.select(F.col("value").cast("string"), "topic", "headers")
    )
    for value in ("a", "b"):
        send(broker, topic, (value, value))
        scratch.run(stream)
    assert scratch.rows(stream, "value", "topic") == multiset([("a", topic), ("b", topic)])


def test_several_topics_begin_at_offsets_that_leave_partitions_out(scratch, broker, topic):
    scratch.clusters["default"] = KafkaCluster(bootstrap=broker.bootstrap)
    other = f"{topic}-other"
    broker.create_topic(other, partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for name, number, value in [(topic, 0, "skipped"), (topic, 0, "a"), (topic, 1, "b"), (other, 1, "c")]:
        producer.produce(name, value=value, partition=number)
    assert producer.flush(30) == 0
    source = KafkaSource(subscribe=[topic, other], starting_offsets={topic: {0: 1}})
    stream = Pipeline("shop").stream(source=source, sink=DeltaAppend(), name="messages")(
        lambda messages: messages.select(F.col("value").cast("string"), "topic")
    )
    scratch.run(stream)
    expected = [("a", topic), ("b", topic), ("c", other)]
    assert scratch.rows(stream) == multiset(expected)
    send(broker, topic, ("d", "d"))
    scratch.run(stream)
    assert scratch.rows(stream) == multiset([*expected, ("d", topic)])

    unknown = KafkaSource(subscribe=topic, starting_offsets={topic: {99: 0}})
    wrong = Pipeline("shop").stream(source=unknown, sink=DeltaAppend(), name="wrong")(
        lambda messages: messages
    )
    with raises("kafka-partition-missing", "partition 99", "correct starting_offsets="):
        scratch.run(wrong)


def test_the_newest_message_of_a_batch_is_known_after_its_run(scratch, broker, topic):
    """A run that is killed before its records has not written it."""
    scratch.clusters["default"] = KafkaCluster(bootstrap=broker.bootstrap)
    source = KafkaSource(subscribe=topic).with_watermark("timestamp", "1 second")
    stream = Pipeline("shop").stream(source={"messages": source}, sink=DeltaAppend(), name="messages")(
        lambda messages: messages.select(F.col("value").cast("string"))
    )
    send(broker, topic, ("before", "before"))
    scratch.run(stream)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result()
    send(broker, topic, *((str(n), str(n)) for n in range(12)))
    scratch.run(stream)
    snapshot = StreamRecords(scratch.lake, stream.name).snapshot()
    with session_of(scratch.engine) as spark:
        context = SourceContext(spark, scratch.target)
        for line in snapshot.records.ledger.lines():
            assert line.newest_event_ms_by_source.keys() == {"messages"}
            again = newest_events(stream, scratch.target, snapshot, line.batch_id, context=context)
            assert again == line.newest_event_ms_by_source


def _all(files, messages, table):
    return files.unionByName(messages).unionByName(table)


def _reordered(table, files, messages):
    return table.unionByName(messages).unionByName(files)


def _without_files(messages, table):
    return messages.unionByName(table)


def _without_messages(table, files):
    return table.unionByName(files)


def test_named_sources_of_every_kind_survive_restart_reorder_add_and_remove(scratch, broker, topic, tmp_path):
    scratch.clusters["default"] = KafkaCluster(bootstrap=broker.bootstrap)
    (tmp_path / "files").mkdir()
    numbers = iter(range(100))
    expected = Counter()
    for union in (_without_files, _all, _all, _reordered, _without_messages):
        shop = Pipeline("shop")
        upstream = shop.stream(source=Feed("lines", format=Raw()), sink=DeltaAppend(), name="lines")(
            lambda lines: lines.select("value")
        )
        readings = {
            "files": FileSource(path=str(tmp_path / "files"), format="text"),
            "messages": KafkaSource(subscribe=topic),
            "table": upstream,
        }
        names = union.__code__.co_varnames[: union.__code__.co_argcount]

        def as_text(*frames, union=union):
            return union(*(frame.select(F.col("value").cast("string").alias("value")) for frame in frames))

        as_text.__signature__ = inspect.signature(union)
        stream = shop.stream(source={n: readings[n] for n in names}, sink=DeltaAppend(), name="all")(as_text)
        number = next(numbers)
        if "files" in names:
            (tmp_path / "files" / f"{number}.txt").write_text(f"file {number}\n")
            expected[(f"file {number}",)] += 1
        if "messages" in names:
            send(broker, topic, (None, f"message {number}"))
            expected[(f"message {number}",)] += 1
        scratch.run(upstream, [[f"row {number}"]])
        expected[(f"row {number}",)] += 1
        scratch.run(stream)
        assert scratch.rows(stream) == expected


def _in_transaction(broker, topic, *, commit):
    """Send messages in one transaction, and commit or abort it."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(8):
        producer.produce(
            topic, value=f"{'committed' if commit else 'aborted'} {number}", partition=number % 4
        )
    assert producer.flush(30) == 0
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)
    _wait_for_markers(broker, topic)


def _wait_for_markers(broker, topic):
    """Wait until no transaction is open: a broker writes its end some time after it has accepted it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    latest = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(4)}

    def ends(level):
        futures = admin.list_offsets(latest, isolation_level=level)
        return {asked.partition: future.result(30).offset for asked, future in futures.items()}

    deadline = time.monotonic() + 30
    while ends(IsolationLevel.READ_COMMITTED) != ends(IsolationLevel.READ_UNCOMMITTED):
        assert time.monotonic() < deadline, "the transaction did not end within 30 s"
        time.sleep(0.05)


def _isolated(scratch, cluster, topic, *, kind, options=None):
    """A stream over a feed or a KafkaSource, and its backlog before the first run."""
    if kind == "feed":
        scratch.bindings["orders"] = TopicBinding(cluster, topic)
        source = Feed("orders", format=Raw())
    else:
        scratch.clusters["default"] = cluster
        source = KafkaSource(subscribe=topic, options=options or {})
    return Pipeline("shop").stream(source=source, sink=DeltaAppend(), name="orders")(
        lambda events: events.select(F.col("value").cast("string").alias("value"))
    )


def _backlog(scratch, stream, offset=None):
    (source,) = stream.sources.values()
    return backlog_of(source, Reading(target=scratch.target, name="events", offset=offset))


@pytest.mark.parametrize("kind", ["feed", "source"])
def test_messages_of_aborted_transactions_never_become_rows(scratch, broker, topic, kind):
    stream = _isolated(scratch, KafkaCluster(broker.bootstrap), topic, kind=kind)
    _in_transaction(broker, topic, commit=True)
    _in_transaction(broker, topic, commit=False)
    scratch.run(stream)
    assert scratch.rows(stream, "value") == multiset([(f"committed {n}",) for n in range(8)])
    (idle,) = scratch.run(stream)
    assert idle.outcome == "idle", "what is left are aborted messages, and they have been passed"


@pytest.mark.parametrize(
    ("consumer", "options"),
    [({"isolation.level": "read_uncommitted"}, {}), ({}, {"kafka.isolation.level": "read_uncommitted"})],
    ids=["cluster", "source"],
)
def test_a_cluster_or_a_source_can_ask_for_uncommitted_messages(scratch, broker, topic, consumer, options):
    cluster = KafkaCluster(broker.bootstrap, consumer=consumer)
    stream = _isolated(scratch, cluster, topic, kind="source", options=options)
    _in_transaction(broker, topic, commit=False)
    scratch.run(stream)
    assert scratch.rows(stream, "value") == multiset([(f"aborted {n}",) for n in range(8)])


def test_an_open_transaction_waits_neither_for_the_backlog_nor_for_the_stream(scratch, broker, topic):
    cluster = KafkaCluster(broker.bootstrap)
    stream = _isolated(scratch, cluster, topic, kind="feed")
    send(broker, topic, (None, "before"))
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value="open", partition=0)
    assert producer.flush(30) == 0
    assert _backlog(scratch, stream).count == 1
    scratch.run(stream)
    assert scratch.run(stream)[0].outcome == "idle"
    producer.commit_transaction(30)
    _wait_for_markers(broker, topic)
    scratch.run(stream)
    assert scratch.rows(stream, "value") == multiset([("before",), ("open",)])

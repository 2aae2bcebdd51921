"""What a source is bound to: the same folder or topic however it is written, and no other one unseen."""

import json
import shutil
import time
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.raising import raises
from tidemill import DeltaAppend, Feed, KafkaSource, Pipeline, Raw
from tidemill.connectors.kafka.continuation import positions_in
from tidemill.operations.edits.rebind import rebind
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.decision import decide_run
from tidemill.storage.lake import Lake
from tidemill.target.target import FolderBinding, KafkaCluster, TopicBinding
from tidemill.testing import multiset
from tidemill.testing.scratch import Scratch

LINES = Pipeline("shop").stream(source=Feed("lines", format=Raw()), sink=DeltaAppend(), name="lines")(
    lambda lines: lines
)


def rows(scratch):
    return scratch.rows(LINES, "value")


def lines(*values: str):
    return multiset((value,) for value in values)


def binding(scratch):
    return StreamRecords(scratch.lake, LINES.name).manifest().active.sources["lines"].binding


@pytest.mark.campaign
def test_a_lake_that_moved_with_its_landing_folder_keeps_working(scratch, tmp_path):
    home = tmp_path / "home"
    before = Scratch(lake=Lake.at(home / "lake"), landing=home / "land ing%20+#", engine=scratch.engine)
    for number in range(11):  # more than ten: Spark has compacted the log of the source
        before.run(LINES, [[f"a{number}"]])
    elsewhere = tmp_path / "mo ved ü"
    home.rename(elsewhere)
    after = Scratch(
        lake=Lake.at(elsewhere / "lake"), landing=elsewhere / "land ing%20+#", engine=scratch.engine
    )
    expected = lines(*(f"a{number}" for number in range(11)))

    assert decide_run(LINES, after.target).idle
    (after.landing / "lines" / "new.json").write_text("b\n")
    assert decide_run(LINES, after.target).backlog["lines"].count == 1
    after.run(LINES)
    assert rows(after) == expected + lines("b")
    assert binding(after)["path"] == str(after.landing / "lines")
    after.run(LINES)
    (after.landing / "lines" / "newer.json").write_text("c\n")
    after.run(LINES)
    assert rows(after) == expected + lines("b", "c")


def test_a_landing_folder_that_is_elsewhere_is_refused_until_it_is_accepted(scratch, tmp_path):
    scratch.run(LINES, [["a"], ["b"]])
    other = tmp_path / "other"
    shutil.copytree(scratch.landing / "lines", other)
    (other / "new.json").write_text("c\n")
    scratch.bindings["lines"] = FolderBinding(other)
    with raises("binding-changed", other, scratch.landing / "lines", "tidemill rebind shop/lines lines"):
        scratch.run(LINES)

    change = rebind(LINES, scratch.target, "lines", dry_run=True)
    assert [effect.split(": ")[-1] for effect in change.effects[1:]] == ["2 files.", "1 file."]
    rebind(LINES, scratch.target, "lines")
    scratch.run(LINES)
    assert rows(scratch) == lines("a", "b", "c")
    with raises("nothing-to-change"):
        rebind(LINES, scratch.target, "lines")


def test_everything_in_another_folder_is_read_on_request(scratch, tmp_path):
    scratch.run(LINES, [["a"]])
    other = tmp_path / "other"
    shutil.copytree(scratch.landing / "lines", other)
    scratch.bindings["lines"] = FolderBinding(other)
    change = rebind(LINES, scratch.target, "lines", from_beginning=True)
    assert decide_run(LINES, scratch.target).backlog["lines"].count == 1
    assert change.effects == (f"Everything in the folder {other} is read.",)
    scratch.run(LINES)
    assert rows(scratch) == lines("a", "a")


ENDS = {("t", 0): 9, ("t", 1): 4}
BEGINS = {("t", 0): 3, ("t", 1): 0}


def test_positions_say_what_is_lost_and_what_does_not_exist():
    positions = positions_in(BEGINS, ENDS, {("t", 0): 1, ("t", 2): 7})
    assert positions.offsets == {("t", 0): 3, ("t", 1): 0}
    lost = "Messages 1 to 2 are lost to this stream."
    assert positions.effects == (
        f"t-0: the checkpoint has offset 1, the topic has 3 to 9: 6 messages to read. {lost}",
        "t-1: the checkpoint has no offset, the topic has 0 to 4: 4 messages to read.",
        "t-2 does not exist: messages after offset 7 are not read.",
    )
    positions = positions_in(BEGINS, ENDS, {("t", 1): 5})
    assert positions.impossible == ("t-1: the checkpoint has offset 5, the topic has 0 to 4",)
    assert positions_in(BEGINS, ENDS, {("t", 1): 5}, again=["t"]).offsets == BEGINS


@pytest.fixture
def topic(broker):
    name = f"t-{uuid4().hex[:8]}"
    broker.create_topic(name, partitions=1)
    return name


def send(broker, topic, *values):
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value=value)
    assert producer.flush(30) == 0


def recreated(broker, topic):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result()
    deadline = time.monotonic() + 30
    while topic in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline, "the topic does not go away"
    broker.create_topic(topic, partitions=1)


def bind(scratch, broker, topic, bootstrap=None):
    scratch.bindings["lines"] = TopicBinding(KafkaCluster(bootstrap=bootstrap or broker.bootstrap), topic)


@pytest.mark.kafka
def test_a_cluster_is_the_same_however_it_is_written(scratch, broker, topic):
    bind(scratch, broker, topic)
    send(broker, topic, "a")
    scratch.run(LINES)
    assert binding(scratch)["cluster_id"]
    assert binding(scratch)["topics"][topic]
    port = broker.bootstrap.rpartition(":")[2]
    bind(scratch, broker, topic, f"{broker.bootstrap},localhost:{port}")
    send(broker, topic, "b")
    scratch.run(LINES)
    assert rows(scratch) == lines("a", "b")


@pytest.mark.kafka
def test_a_recreated_topic_is_refused_until_it_is_accepted(scratch, broker, topic):
    bind(scratch, broker, topic)
    send(broker, topic, "a", "b")
    scratch.run(LINES)
    old = binding(scratch)["topics"][topic]
    recreated(broker, topic)
    send(broker, topic, "c", "d", "e")  # more than before: the offset exists, and "c" and "d" would be lost
    with raises("binding-changed", old, "tidemill rebind shop/lines lines"):
        scratch.run(LINES)
    rebind(LINES, scratch.target, "lines", from_beginning=True)
    scratch.run(LINES)
    assert rows(scratch) == lines("a", "b", "c", "d", "e")


@pytest.mark.campaign
@pytest.mark.kafka
def test_another_cluster_is_refused_until_it_is_accepted(scratch, broker, topic):
    from tidemill.engines.dev.broker import Broker

    bind(scratch, broker, topic)
    send(broker, topic, "a", "b")
    scratch.run(LINES)
    with Broker() as other:
        other.create_topic(topic, partitions=1)
        send(other, topic, "a")
        bind(scratch, other, topic)
        with raises("binding-changed", "of the Kafka cluster"):
            scratch.run(LINES)
        with raises("rebind-not-possible", "offset 2, the topic has 0 to 1", "--from-beginning"):
            rebind(LINES, scratch.target, "lines")
        send(other, topic, "b", "c")  # now it is a copy of the old one, and one message more
        change = rebind(LINES, scratch.target, "lines")
        assert change.effects == (
            f"{topic}-0: the checkpoint has offset 2, the topic has 0 to 3: 1 message to read.",
        )
        scratch.run(LINES)
    assert rows(scratch) == lines("a", "b", "c")


@pytest.mark.kafka
def test_a_feed_moves_from_a_folder_into_a_topic(scratch, broker, topic):
    scratch.run(LINES, [["a"]])
    bind(scratch, broker, topic)
    send(broker, topic, "b")
    with raises("binding-changed", "tidemill rebind"):
        scratch.run(LINES)
    with raises("rebind-not-possible", "--from-beginning"):
        rebind(LINES, scratch.target, "lines")
    rebind(LINES, scratch.target, "lines", from_beginning=True)
    scratch.run(LINES)
    send(broker, topic, "c")
    scratch.run(LINES)
    assert rows(scratch) == lines("a", "b", "c")


@pytest.mark.kafka
def test_a_kafka_source_is_guarded_and_may_get_more_topics(scratch, broker, topic):
    scratch.clusters["default"] = KafkaCluster(bootstrap=broker.bootstrap)

    def stream(*topics):
        source = KafkaSource(subscribe=topics)
        return Pipeline("shop").stream(source=source, sink=DeltaAppend(), name="messages")(
            lambda messages: messages.selectExpr("CAST(value AS STRING) AS value")
        )

    second = f"{topic}-2"
    broker.create_topic(second, partitions=1)
    send(broker, topic, "a")
    send(broker, second, "b")
    scratch.run(stream(topic))
    scratch.run(stream(topic, second))
    assert scratch.rows(stream(topic)) == Counter({("a",): 1, ("b",): 1})
    with raises("binding-changed", f"reads {second}", f"continues {topic}, {second}"):
        scratch.run(stream(second))
    recreated(broker, topic)
    with raises("binding-changed", "recreated"):
        scratch.run(stream(topic, second))


@pytest.mark.kafka
def test_a_binding_is_plain_data_in_the_manifest(scratch, broker, topic):
    bind(scratch, broker, topic)
    scratch.run(LINES)
    manifest = json.loads((Path(scratch.lake.records(LINES.name).uri()) / "manifest.json").read_text())
    recorded = manifest["generations"][0]["sources"]["lines"]["binding"]
    assert recorded["kind"] == "kafka"
    assert set(recorded) == {"kind", "cluster_id", "topics"}

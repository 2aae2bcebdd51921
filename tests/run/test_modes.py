"""Modes of low latency, from Kafka to Kafka: they start, run and stop, and any other run continues behind them."""

import time
from datetime import timedelta

import pytest
from confluent_kafka import Producer

from tests.run.test_follow import followed, until
from tests.support.checked import failed_checks
from tests.support.raising import raises
from tests.support.topics import messages, new_topic
from tidemill import DeltaAppend, Expect, Feed, Json, KafkaSink, KafkaSource, Pipeline
from tidemill import functions as F
from tidemill.records.stream_records import StreamRecords
from tidemill.run.execute import direct, modes
from tidemill.run.execute.follow import Follow
from tidemill.run.execute.modes import check_mode
from tidemill.run.execute.pipeline_run import PipelineRun
from tidemill.testing import multiset

MODES = ("async", "real-time", "continuous")
EVERY = {"async": timedelta(0), "real-time": timedelta(seconds=5), "continuous": timedelta(seconds=1)}

kafka = pytest.mark.kafka


def gated(*chosen):
    """All modes, of which the gate has some: what they share is one mechanism, and the conformance tests run each."""
    campaign = pytest.mark.campaign
    modes = [pytest.param(mode, marks=[] if mode in chosen else [campaign]) for mode in MODES]
    return pytest.mark.parametrize("mode", modes)


@pytest.fixture
def topics(broker, scratch):
    return new_topic(broker, scratch), new_topic(broker, scratch)


@pytest.fixture(autouse=True)
def record_often(monkeypatch):
    monkeypatch.setattr(direct, "_RECORD_SECONDS", 0.5)


def send(broker, topic, *values):
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, key=f"k{value}", value=value, partition=number % 2)
    assert producer.flush(30) == 0


def received(broker, topic):
    return multiset(value.decode() for _, value, _, _ in messages(broker, topic))


def copied(source, sink):
    return Pipeline("shop").stream(
        source={"messages": KafkaSource(subscribe=source)}, sink=sink, name="copied"
    )(
        lambda messages: messages.select("key", F.upper(F.col("value").cast("string")).alias("value")).where(
            "value <> 'SKIPPED'"
        )
    )


def in_mode(scratch, stream, mode):
    """Follow the source of a stream in a mode."""
    return followed(scratch, stream, mode=mode, every=EVERY[mode])


def refusal(scratch, stream, mode):
    """The error with which a stream fails that cannot run in a mode."""
    with in_mode(scratch, stream, mode) as results:
        until(lambda: results)
    [result] = results
    assert (result.outcome, result.error.code) == ("failed", "mode-unsuitable")
    return str(result.error)


def lines_of(scratch, stream):
    return sorted(StreamRecords(scratch.lake, stream.name).ledger.lines(), key=lambda line: line.batch_id)


@kafka
@gated("async", "real-time")
def test_what_arrives_is_written_at_once_and_an_ordinary_run_continues(
    scratch, broker, topics, mode, monkeypatch
):
    source, sink = topics
    behind = {"asyncProgressTrackingCheckpointIntervalMs": "3600000"}  # the log of its progress stays behind
    monkeypatch.setitem(modes.OPTIONS, "async", {**modes.OPTIONS["async"], **behind})
    stream = copied(source, KafkaSink(sink))
    send(broker, source, "a", "b")
    scratch.run(stream)
    with in_mode(scratch, stream, mode) as results:
        for value in "cdef":
            time.sleep(0.3)
            send(broker, source, value, "skipped")
        until(lambda: received(broker, sink).total() == 6)
        if mode == "continuous":  # it ends at once, and what it has not saved would be written again
            until(lambda: sum(line.rows_read for line in lines_of(scratch, stream)) == 10)
        assert StreamRecords(scratch.lake, stream.name).holder() is not None, "the lease is held"
    assert [(result.outcome, result.error) for result in results] == [("updated", None)]
    assert received(broker, sink) == multiset("ABCDEF")
    send(broker, source, "g")
    assert [result.outcome for result in scratch.run(stream)] == ["updated"]
    assert [result.outcome for result in scratch.run(stream)] == ["idle"]
    assert received(broker, sink) == multiset("ABCDEFG"), "nothing is written twice, and nothing is left out"
    lines = lines_of(scratch, stream)
    assert [line.batch_id for line in lines] == list(range(len(lines)))
    assert sum(line.rows_read for line in lines) == 11
    assert failed_checks(scratch, stream) == []


@kafka
@gated("continuous")
def test_a_topic_that_is_empty_at_first(scratch, broker, topics, mode):
    source, sink = topics
    stream = copied(source, KafkaSink(sink))
    with in_mode(scratch, stream, mode):
        time.sleep(1)
        send(broker, source, "a")
        until(lambda: received(broker, sink).total() == 1)
        until(lambda: lines_of(scratch, stream))
        send(broker, source, "b")
        until(lambda: received(broker, sink).total() == 2)
    assert received(broker, sink) == multiset("AB")
    assert failed_checks(scratch, stream) == []


@kafka
@gated("async")
def test_a_run_that_was_killed_leaves_nothing_out(scratch, broker, topics, mode, monkeypatch):
    """What it has written and not committed is written again."""
    source, sink = topics
    stream = copied(source, KafkaSink(sink))
    send(broker, source, "a")
    scratch.run(stream)
    monkeypatch.setattr(direct, "_RECORD_SECONDS", 3600)
    monkeypatch.setattr(direct.DirectQuery, "finish", lambda _: None)
    monkeypatch.setattr(direct.DirectQuery, "record", lambda _: None)
    with in_mode(scratch, stream, mode):
        send(broker, source, "b", "c")
        until(lambda: received(broker, sink).total() == 3)
        time.sleep(2 * EVERY["real-time"].total_seconds())  # and it is committed
    monkeypatch.undo()
    assert len(lines_of(scratch, stream)) == 1, "the stream's own checkpoint knows nothing of it"
    send(broker, source, "d")
    scratch.run(stream)
    assert received(broker, sink) == multiset("ABCD"), (
        "what it had committed is recorded, and not written again"
    )
    assert [line.rows_read for line in lines_of(scratch, stream)] == [1, 2, 1]
    assert failed_checks(scratch, stream) == []


@pytest.mark.campaign
@kafka
def test_a_record_that_was_killed_half_way_is_finished(scratch, broker, topics, monkeypatch):
    source, sink = topics
    stream = copied(source, KafkaSink(sink))
    send(broker, source, "a")
    scratch.run(stream)
    for step in ("commit_batch", "schedule_batch"):
        count = received(broker, sink).total()
        with monkeypatch.context() as patched:
            patched.setattr(f"tidemill.checkpoint.write.CheckpointWriter.{step}", _killed)
            with in_mode(scratch, stream, "async") as results:
                send(broker, source, "b")
                until(lambda count=count: received(broker, sink).total() > count)
                until(lambda results=results: results)
            [failed] = results
            assert failed.outcome == "failed"
        scratch.run(stream)
        assert failed_checks(scratch, stream) == []
    assert received(broker, sink) == multiset("ABB")
    assert [line.rows_read for line in lines_of(scratch, stream)] == [1, 1, 1]


def _killed(*_):
    raise RuntimeError("killed")


@kafka
@pytest.mark.parametrize("mode", [pytest.param("real-time", marks=pytest.mark.campaign), "continuous"])
def test_more_partitions_than_cores_are_refused(scratch, broker, mode):
    source, sink = (new_topic(broker, scratch) for _ in range(2))
    broker.create_topic(f"{source}-many", partitions=64)
    stream = copied(f"{source}-many", KafkaSink(sink))
    send(broker, f"{source}-many", "a")
    scratch.run(stream)
    assert "64 partitions" in refusal(scratch, stream, mode)


@kafka
@gated("real-time")
def test_a_function_with_state_is_refused_and_nothing_is_changed(scratch, broker, topics, mode):
    source, sink = topics
    stream = Pipeline("shop").stream(
        source={"messages": KafkaSource(subscribe=source)}, sink=KafkaSink(sink), name="distinct"
    )(lambda messages: messages.select(F.col("value").cast("string")).dropDuplicates(["value"]))
    send(broker, source, "a", "a")
    scratch.run(stream)
    assert "keeps state" in refusal(scratch, stream, mode)
    send(broker, source, "b", "a")
    scratch.run(stream)
    assert received(broker, sink) == multiset("ab")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"sink": DeltaAppend()}, "it writes a table"),
        ({"sink": [DeltaAppend(), KafkaSink("t")]}, "it writes a table"),
        ({"sink": [KafkaSink("t"), KafkaSink("u", name="other")]}, "it has 2 sinks"),
        ({"expect": [Expect("large", "value > 1")]}, "its expectations"),
        ({"source": {"rows": Feed("orders", format=Json("value STRING"))}}, "its feed"),
        ({"source": {"a": KafkaSource(subscribe="a"), "b": KafkaSource(subscribe="b")}}, "it has 2 sources"),
        (
            {"source": {"rows": KafkaSource(subscribe="a").with_watermark("timestamp", "1 hour")}},
            "its source has a watermark",
        ),
    ],
)
def test_a_declaration_that_needs_batches_is_refused_before_anything_starts(mode, declared, reason):
    given = {"source": {"rows": KafkaSource(subscribe="a")}, "sink": KafkaSink("t")} | declared
    function = (lambda a, b: a.union(b)) if reason == "it has 2 sources" else (lambda rows: rows)
    stream = Pipeline("shop").stream(**given, name="copied")(function)
    with raises("mode-unsuitable", reason):
        check_mode([stream], mode, timedelta(0))
    with raises("mode-unsuitable", reason):
        PipelineRun([stream], target=None, engine=None, run_id="run", follow=Follow(mode=mode))
    check_mode([stream], "micro-batch", timedelta(0))


def test_a_batch_of_real_time_mode_lasts_at_least_five_seconds():
    stream = copied("a", KafkaSink("b"))
    with raises("mode-unsuitable", "at least 5 s"):
        check_mode([stream], "real-time", timedelta(seconds=1))
    check_mode([stream], "real-time", timedelta(seconds=5))
    check_mode([stream], "continuous", timedelta(seconds=1))

"""Limits of a batch for every kind of source, and options that a checkpoint keeps from its first start."""

import json
from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from tests.support.raising import raises
from tidemill import (
    DeltaAppend,
    DeltaMerge,
    DeltaSource,
    Feed,
    FileSource,
    Json,
    KafkaSource,
    Pipeline,
    QueryOptions,
)
from tidemill.connectors.registry import connector_of
from tidemill.definitions.options import pinned_differences
from tidemill.storage.table_ref import TableRef
from tidemill.testing import multiset

FEED = Feed("orders", format=Json("id STRING, n INT"))


class Reader:
    """Stands for Spark's reader and records its options."""

    def __init__(self):
        self.given = {}

    def __getattr__(self, name):
        return self

    def __call__(self, *_, **__):
        return self

    def option(self, name, value):
        self.given[name] = value
        return self

    def options(self, **options):
        self.given |= options
        return self

    def limits(self):
        return {
            name: value for name, value in self.given.items() if name.startswith("max") and "Trigger" in name
        }


class Spark:
    def __init__(self):
        self.readStream = Reader()


class Context:
    """A context whose feeds are topics, and whose tables are nowhere."""

    def __init__(self):
        self.spark, self.target, self.pins, self.stand_ins = Spark(), self, {}, {}
        self.starts, self.stops_at_removed = {"source": "begun"}, False
        self.lake = self

    def cluster(self, _name):
        return self

    def spark_options(self):
        return {}

    def table_at(self, path):
        return TableRef.at(path)

    def table(self, name):

        return TableRef.at("/tables/" + str(name))


def orders():
    return Pipeline("shop").stream(source=FEED, sink=DeltaAppend(), name="orders")(lambda events: events)


def merged():
    sink = DeltaMerge(keys=["id"], sequence_by="n")
    return Pipeline("shop").stream(source=FEED, sink=sink, name="merged")(lambda events: events)


FILES, BYTES, OFFSETS = "maxFilesPerTrigger", "maxBytesPerTrigger", "maxOffsetsPerTrigger"


@pytest.mark.parametrize(
    ("source", "limits"),
    [
        (KafkaSource(subscribe="a"), {OFFSETS: "1000000"}),
        (KafkaSource(subscribe="a", max_records_per_batch=5), {OFFSETS: "5"}),
        (KafkaSource(subscribe="a", max_records_per_batch=None), {}),
        (FileSource(path="in", format="text"), {FILES: "1000"}),
        (FileSource(path="in", format="text", max_files_per_batch=None), {}),
        (FileSource(path="in", format="text", max_bytes_per_batch=9), {BYTES: "9"}),
        (DeltaSource(path="t"), {FILES: "1000"}),
        (DeltaSource(path="t", max_files_per_batch=2, max_bytes_per_batch=9), {FILES: "2", BYTES: "9"}),
        (orders().reading(), {FILES: "1000"}),
        (orders().limited(max_bytes_per_batch=9), {FILES: "1000", BYTES: "9"}),
        (orders().limited(max_files_per_batch=3).with_watermark("t", "1 hour"), {FILES: "3"}),
        # Not as a merge table: tombstones are left out by functions, which need Spark.
        (replace(merged().changes(), is_merge=False).limited(max_files_per_batch=3), {FILES: "3"}),
    ],
)
def test_every_streaming_source_has_a_limit(source, limits):
    context = Context()
    connector_of(source).load(source, context, "source")
    assert context.spark.readStream.limits() == limits


@pytest.mark.parametrize(
    ("declare", "code", "value"),
    [
        (
            lambda: FileSource(path="in", format="text", options={FILES: "5"}),
            "option-is-argument",
            "max_files_per_batch=",
        ),
        (
            lambda: FileSource(path="in", format="text", options={"maxbytespertrigger": "5"}),
            "option-is-argument",
            "max_bytes_per_batch=",
        ),
        (lambda: DeltaSource(path="t", options={FILES: "5"}), "option-is-argument", "max_files_per_batch="),
        (lambda: DeltaSource(path="t", options={BYTES: "5"}), "option-is-argument", "max_bytes_per_batch="),
        (
            lambda: KafkaSource(subscribe="a", options={OFFSETS: "5"}),
            "option-is-argument",
            "max_records_per_batch=",
        ),
        (
            lambda: FileSource(path="in", format="text", max_bytes_per_batch=0),
            "argument-invalid",
            "max_bytes_per_batch is 0",
        ),
        (
            lambda: DeltaSource(path="t", max_bytes_per_batch=0),
            "argument-invalid",
            "max_bytes_per_batch is 0",
        ),
        (
            lambda: Feed("a", format=Json("id INT"), max_bytes_per_batch=-1),
            "argument-invalid",
            "max_bytes_per_batch is -1",
        ),
        (lambda: orders().limited(max_files_per_batch=0), "argument-invalid", "max_files_per_batch is 0"),
        (lambda: orders().static().limited(max_files_per_batch=1), "snapshot-not-streamed", "static"),
        (lambda: merged().limited(max_files_per_batch=1), "table-not-streamable", "changes()"),
    ],
)
def test_a_wrong_limit_is_refused_with_the_argument(declare, code, value):
    with raises(code, value):
        declare()


def test_batches_of_a_feed_and_of_its_reader_follow_their_limits(scratch):
    shop = Pipeline("shop")
    feed = Feed("orders", format=Json("id STRING, n INT"), max_bytes_per_batch=10)
    first = shop.stream(source=feed, sink=DeltaAppend(), name="orders")(lambda events: events)
    copy = shop.stream(source=first.limited(max_files_per_batch=1), sink=DeltaAppend(), name="copy")(
        lambda t: t
    )
    for number in range(3):
        scratch.drop_file("orders", [{"id": f"o{number}", "n": number}])
    results = scratch.run_all([first, copy])
    # A file is read whole although it is larger than the limit.
    assert [len(result.batches) for result in results] == [3, 3]
    assert scratch.rows(copy, "id") == multiset([("o0",), ("o1",), ("o2",)])


ROCKSDB = QueryOptions().declared_confs["spark.sql.streaming.stateStore.providerClass"]


@pytest.mark.parametrize(
    ("options", "differences"),
    [
        (QueryOptions(), []),
        (QueryOptions(shuffle_partitions=2), []),
        (QueryOptions(shuffle_partitions=4), [("shuffle_partitions", "4", "2")]),
        (QueryOptions(state_store="hdfs"), [("state_store", "hdfs", "rocksdb")]),
        (QueryOptions(watermark_policy="max"), [("watermark_policy", "max", "min")]),
        (QueryOptions(options={"spark.sql.x": "1"}), []),
        (
            QueryOptions(options={"spark.sql.streaming.join.stateFormatVersion": "3"}),
            [("spark.sql.streaming.join.stateFormatVersion", "3", "2")],
        ),
    ],
)
def test_what_a_checkpoint_keeps_is_compared_with_the_declaration(options, differences):
    pinned = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.multipleWatermarkPolicy": "min",
        "spark.sql.streaming.join.stateFormatVersion": "2",
    }
    sentences = pinned_differences(pinned, options.declared_confs)
    assert len(sentences) == len(differences)
    for sentence, (name, declared, kept) in zip(sentences, differences, strict=True):
        assert sentence.startswith(f"{name} is declared as {declared} and the checkpoint keeps {kept}: ")
        assert f"Fix: declare {kept}, or rebuild" in sentence


@pytest.mark.parametrize("changed", [1, pytest.param(3, marks=pytest.mark.campaign)])
def test_partitions_that_change_after_the_first_batch_have_no_effect(scratch, changed):
    """Spark writes them into the offsets of the second batch, and the state has those of the first."""
    shop = Pipeline("shop")
    feed = shop.stream(source=FEED, sink=DeltaAppend(), name="orders")(lambda events: events)

    def counted(partitions):
        return Pipeline("shop").stream(
            source=feed,
            sink=DeltaMerge(keys=["id"], sequence_by="count"),
            query=QueryOptions(output_mode="update", shuffle_partitions=partitions),
            name="counts",
        )(lambda events: events.groupBy("id").agg(F.count("*").alias("count")))

    for partitions in (2, changed):
        scratch.run(feed, [[{"id": f"o{number}", "n": partitions} for number in range(5)]])
        scratch.run(counted(partitions))
    assert scratch.rows(counted(2)) == multiset((f"o{number}", 2) for number in range(5))
    checkpoint = scratch.checkpoint(counted(2).name)
    assert len([path for path in (checkpoint / "state" / "0").iterdir() if path.name.isdigit()]) == 2
    pinned = json.loads((checkpoint / "offsets" / "1").read_text().splitlines()[1])["conf"]
    assert pinned_differences(pinned, counted(2).query.declared_confs) == []
    assert len(pinned_differences(pinned, counted(changed).query.declared_confs)) == 1

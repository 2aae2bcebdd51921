"""What a user declares wrongly is an error at once, with the stream, the field, the value and the reason."""

import subprocess
import sys

import pytest
from pyspark.sql.types import IntegerType

from tests.support.raising import raises
from tidemill import (
    BackfillBy,
    DeltaAppend,
    DeltaMerge,
    DeltaOverwrite,
    DeltaSource,
    Expect,
    Feed,
    FileSource,
    Json,
    KafkaSource,
    Pipeline,
    QueryOptions,
)

FEED = Feed("events", format=Json("id STRING"))


def same(events):
    return events


def declared(pipeline=None, function=same, **fields):
    pipeline = pipeline or Pipeline("shop")
    return pipeline.stream(**{"source": FEED, "sink": DeltaAppend(), **fields})(function)


def files(kind, *, path="/data/in", **options):
    return FileSource(path=path, format=kind, schema=None if kind == "text" else "a INT", options=options)


def table(**options):
    return DeltaSource(path="t", options=options)


def two(left, right):
    return left.union(right)


async def later(events):
    return events


@pytest.mark.parametrize(
    ("declare", "code", "value"),
    [
        (lambda: Pipeline("Shop"), "name-invalid", "pipeline name 'Shop'"),
        (lambda: Pipeline("../shop"), "name-invalid", "pipeline name '../shop'"),
        (lambda: Pipeline("streaming"), "name-reserved", "'streaming'"),
        (lambda: declared(name="a__b"), "name-invalid", "stream name 'a__b'"),
        (lambda: declared(name="x'; DROP"), "name-invalid", '"x\'; DROP"'),
        (lambda: Feed("../etc", format=Json("id STRING")), "name-invalid", "feed name '../etc'"),
        (lambda: Feed("events", format="id STRING"), "argument-invalid", "format is 'id STRING'"),
        (lambda: Feed("events", format=Json("id STRING"), rules={"a-b": "true"}), "name-invalid", "a-b"),
        (
            lambda: Feed("events", format=Json("id STRING"), rules={"unparsable": "true"}),
            "name-reserved",
            "'unparsable'",
        ),
        (lambda: Feed("events", format=Json(" ")), "schema-invalid", "Json: schema is ' '"),
        (
            lambda: Feed("events", format=Json("id STRING"), max_records_per_batch=0),
            "argument-invalid",
            "max_records_per_batch is 0",
        ),
        (lambda: FEED.with_watermark("t", "2 hours"), "feed-with-state", "'t'"),
        (
            lambda: FileSource(path="in", format="xls", schema="a INT"),
            "argument-invalid",
            "format is 'xls'",
        ),
        (
            lambda: FileSource(path="in", format="xml", schema="a INT"),
            "argument-invalid",
            "'rowTag' is missing",
        ),
        (
            lambda: FileSource(path="in", format="binaryFile", schema="a INT"),
            "arguments-conflict",
            "content BINARY",
        ),
        (lambda: FileSource(path="in", format="json", schema=IntegerType()), "schema-invalid", "StructType"),
        (lambda: FileSource(path="in", format="json"), "argument-invalid", "schema"),
        (
            lambda: FileSource(path="in", format="text", options={"sourceArchiveDir": "in/done"}),
            "arguments-conflict",
            "in/done",
        ),
        (KafkaSource, "arguments-conflict", "subscribe=()"),
        (
            lambda: KafkaSource(subscribe="a", subscribe_pattern="b"),
            "arguments-conflict",
            "subscribe_pattern='b'",
        ),
        (
            lambda: QueryOptions(options={"spark.sql.streaming.streamingQueryListeners": "shop.Listener"}),
            "option-not-allowed",
            "[spark.conf]",
        ),
        (
            lambda: KafkaSource(subscribe="a", options={"minOffsetsPerTrigger": "5"}),
            "option-not-allowed",
            "minOffsetsPerTrigger",
        ),
        (
            lambda: KafkaSource(subscribe="a", options={"kafka.ssl.key.password": "x"}),
            "option-not-allowed",
            "kafka.ssl.key.password",
        ),
        (lambda: DeltaSource(table="sales.orders"), "name-invalid", "catalog.schema.table"),
        (lambda: DeltaSource(table="main.sales.or`ders"), "name-invalid", "main.sales.or`ders"),
        (
            lambda: DeltaSource(path="/a", table="main.sales.orders"),
            "arguments-conflict",
            "main.sales.orders",
        ),
        (lambda: DeltaAppend(table="main.sales"), "name-invalid", "DeltaAppend: table"),
        (lambda: declared(table="orders"), "argument-not-known", "a table sink"),
        (lambda: QueryOptions(trigger="1 minute"), "argument-not-known", "run_when="),
        (lambda: DeltaAppend(partitionBy=["day"]), "argument-not-known", "partition_by, cluster_by"),
        (lambda: KafkaSource(subscribe="a, b"), "argument-invalid", "subscribe=['a', 'b']"),
        (lambda: KafkaSource(subscribe="a", starting_offsets="first"), "argument-invalid", "'first'"),
        (lambda: KafkaSource(subscribe=["a", "b", "a"]), "argument-invalid", "each topic once"),
        (lambda: KafkaSource(subscribe=["a", ""]), "argument-invalid", "name of a topic"),
        (lambda: KafkaSource(subscribe="a", starting_offsets={"b": {0: 1}}), "argument-invalid", "'b'"),
        (lambda: KafkaSource(subscribe="a", starting_offsets={"a": 1}), "argument-invalid", "{0: 17}"),
        (
            lambda: KafkaSource(subscribe="a", starting_offsets={"a": {0: -3}}),
            "argument-invalid",
            "-2 (earliest)",
        ),
        (
            lambda: KafkaSource(subscribe="a", starting_offsets={"a": {"0": 3}}),
            "argument-invalid",
            "whole numbers",
        ),
        (
            lambda: KafkaSource(assign={"a": (0,)}, starting_offsets={"a": {1: 5}}),
            "argument-invalid",
            "assign has [0]",
        ),
        (
            lambda: KafkaSource(subscribe="a", options={"kafka.bootstrap.servers": "b:9092"}),
            "option-is-argument",
            "cluster=",
        ),
        (
            lambda: KafkaSource(subscribe="a", options={"includeHeaders": "true"}),
            "option-is-argument",
            "include_headers=",
        ),
        (
            lambda: KafkaSource(subscribe="a", options={"kafka.auto.offset.reset": "latest"}),
            "option-not-allowed",
            "kafka.auto.offset.reset",
        ),
        (
            lambda: KafkaSource(subscribe="a", starting_offsets="latest", options={"startingTimestamp": "1"}),
            "arguments-conflict",
            "starting_offsets=",
        ),
        (
            lambda: KafkaSource(subscribe="a", options={"minPartitions": "many"}),
            "argument-invalid",
            "'many'; give a whole number",
        ),
        (lambda: files("text", cleanSource="archive"), "arguments-conflict", "sourceArchiveDir"),
        (lambda: files("text", cleanSource="keep"), "argument-invalid", "archive, delete or off"),
        (
            lambda: files("text", path="/x?/{in,out}/*", sourceArchiveDir="/xy/out"),
            "arguments-conflict",
            "/xy",
        ),
        (lambda: files("text", path="/x/in", sourceArchiveDir="/x"), "arguments-conflict", "contains it"),
        (lambda: files("text", modifiedAfter="2026-01-01"), "option-not-allowed", "modifiedAfter"),
        (lambda: files("text", latestFirst="yes please"), "argument-invalid", "true or false"),
        (
            lambda: files("text", maxFileAge="7 days"),
            "argument-invalid",
            "'7 days'; give a number with a unit",
        ),
        (lambda: files("csv", mode="FAILFASTT"), "argument-invalid", "PERMISSIVE, DROPMALFORMED or FAILFAST"),
        (
            lambda: Json("a INT", options={"mode": "FAILFASTT"}),
            "argument-invalid",
            "PERMISSIVE, DROPMALFORMED or FAILFAST",
        ),
        (lambda: table(readChangeFeed="true"), "option-is-argument", "mode='changes'"),
        (
            lambda: table(startingVersion="1", startingTimestamp="2026-01-01"),
            "arguments-conflict",
            "startingTimestamp",
        ),
        (lambda: table(startingVersion="newest"), "argument-invalid", "a number or 'latest'"),
        (lambda: table(startingTimestamp="yesterday"), "argument-invalid", "'yesterday'"),
        (lambda: DeltaSource(path="gs://bucket/orders"), "store-not-supported", "is on gs://"),
        (lambda: DeltaSource(path="t").with_watermark("t", "soon"), "argument-invalid", "'soon'"),
        (lambda: DeltaSource(path="t").with_watermark("t", "1 month"), "argument-invalid", "1 month"),
        (
            lambda: DeltaSource(path="t").static().with_watermark("t", "1 hour"),
            "snapshot-not-streamed",
            "Delta table t",
        ),
        (
            lambda: declared().with_watermark("t", "1 hour").with_watermark("t", "1 hour"),
            "watermark-taken",
            "'t'",
        ),
        (lambda: DeltaAppend(partition_by="day"), "argument-invalid", "partition_by is 'day'"),
        (lambda: DeltaAppend(partition_by=["a"], cluster_by=["b"]), "arguments-conflict", "cluster_by"),
        (lambda: DeltaMerge(keys=[], sequence_by="n"), "argument-invalid", "keys is empty"),
        (lambda: DeltaMerge(keys=["id"], sequence_by="n", scd_type=3), "argument-invalid", "scd_type is 3"),
        (lambda: DeltaMerge(keys=["id"], sequence_by="n", valid_by="t"), "arguments-conflict", "scd_type=2"),
        (
            lambda: DeltaMerge(keys=["id"], sequence_by="n", except_columns=["n"]),
            "arguments-conflict",
            "except_columns has ['n']",
        ),
        (lambda: declared(backfill_by=""), "argument-invalid", "backfill_by is ''"),
        (lambda: declared(backfill_by=["day"]), "argument-invalid", "backfill_by is ['day']"),
        (lambda: BackfillBy("day", every="week", since="2026-01-01"), "argument-invalid", "every is 'week'"),
        (lambda: BackfillBy("day", every="day"), "arguments-conflict", "BackfillBy"),
        (lambda: BackfillBy("day", since="2026-01-01"), "arguments-conflict", "BackfillBy"),
        (lambda: BackfillBy("day", every="day", since="20260101"), "argument-invalid", "since is '20260101'"),
        (
            lambda: BackfillBy("day", every="day", since="2026-02-30"),
            "argument-invalid",
            "since is '2026-02-30'",
        ),
        (lambda: Expect("a b", "true"), "name-invalid", "a b"),
        (lambda: Expect("a", "true", on_violation="explode"), "argument-invalid", "explode"),
        (
            lambda: Expect("columns_changed", "a", on_violation="quarantine"),
            "name-reserved",
            "columns_changed",
        ),
        (
            lambda: declared(
                source=declared(name="before"),
                sink=DeltaOverwrite(),
                query=QueryOptions(output_mode="complete"),
                expect=[Expect("a", "a", on_violation="quarantine")],
            ),
            "expectation-unsuitable",
            "on_violation='drop'",
        ),
        (lambda: Expect("a", ""), "condition-invalid", "condition is ''"),
        (lambda: QueryOptions(output_mode="all"), "argument-invalid", "'all'"),
        (lambda: QueryOptions(shuffle_partitions=0), "argument-invalid", "shuffle_partitions is 0"),
        (
            lambda: QueryOptions(options={"spark.sql.shuffle.partitions": "3"}),
            "option-is-argument",
            "shuffle_partitions=",
        ),
        (
            lambda: QueryOptions(options={"asyncProgressTrackingEnabled": "true"}),
            "option-not-allowed",
            "--mode async",
        ),
        (
            lambda: QueryOptions(options={"spark.executor.memory": "3g"}),
            "option-not-allowed",
            "spark.executor.memory",
        ),
        (lambda: QueryOptions(max_run="a while"), "argument-invalid", "a while"),
        (lambda: declared(function=dict), "function-invalid", "<class 'dict'>"),
        (lambda: declared(function=later), "function-invalid", "a coroutine or a generator"),
        (lambda: declared(function=min), "function-invalid", "has no signature"),
        (lambda: declared(function=lambda *events: events[0], name="same"), "function-invalid", "*args"),
        (lambda: declared(function=two), "source-arguments-differ", "['left', 'right']"),
        (
            lambda: declared(function=two, source={"left": declared(), "other": declared()}),
            "source-arguments-differ",
            "['left', 'other']",
        ),
        (
            lambda: declared(function=two, source={"left": FEED, "right": declared().static()}),
            "feed-not-alone",
            "'left'",
        ),
        (lambda: declared(source="events"), "argument-invalid", "source 'events'"),
        (lambda: declared(source=declared().static()), "no-streaming-source", "shop/same"),
        (lambda: declared(sink=[]), "argument-invalid", "sink is []"),
        (lambda: declared(sink=[DeltaAppend(), DeltaAppend()]), "sink-name-taken", "['main', 'main']"),
        (lambda: declared(sink=[DeltaAppend(name="copy")]), "sink-name-taken", "['copy']"),
        (
            lambda: declared(expect=[Expect("a", "true"), Expect("a", "true")]),
            "rule-name-taken",
            "['a', 'a']",
        ),
        (lambda: declared(query=QueryOptions(output_mode="update")), "feed-with-state", "'update'"),
        (
            lambda: declared(source=declared(name="first"), query=QueryOptions(output_mode="update")),
            "sink-unsuitable",
            "DeltaMerge",
        ),
        (
            lambda: declared(sink=DeltaMerge(keys=["id"], sequence_by="n")).reading(),
            "table-not-streamable",
            "changes()",
        ),
        (lambda: declared().changes(), "change-feed-missing", "shop/same"),
    ],
)
def test_a_wrong_definition_is_refused_with_its_code(declare, code, value):
    with raises(code, value):
        declare()


def test_a_refused_stream_is_named_with_its_place():
    with raises("argument-invalid", "shop/same", "test_definitions.py:"):
        declared(sink=[])


def test_a_second_stream_of_one_name_is_refused_with_the_place_of_the_first():
    pipeline = Pipeline("shop")
    declared(pipeline)
    with raises("stream-name-taken", "test_definitions.py:"):
        declared(pipeline)


def test_streaming_a_merge_table_is_refused_with_the_way_around():
    merged = declared(sink=DeltaMerge(keys=["id"], sequence_by="n"), name="merged")
    with raises("table-not-streamable", "merged.changes()"):
        declared(source=merged)
    assert declared(source=merged.changes()).upstreams == {merged.name: True}


def test_a_stream_that_reads_its_own_table_is_a_cycle():
    earlier = declared(Pipeline("shop"))
    with raises("streams-in-a-cycle"):
        declared(Pipeline("shop"), source=earlier)


def test_a_static_upstream_wakes_nobody():
    first, second = declared(), declared(Pipeline("other"))
    joined = declared(function=two, source={"left": first, "right": second.static()}, name="joined")
    assert joined.upstreams == {first.name: True, second.name: False}


def test_a_column_to_backfill_by_may_have_days_or_hours():
    assert declared().backfill_by is None
    assert declared(backfill_by="day").backfill_by == BackfillBy("day")
    hours = BackfillBy("at", every="hour", since="2026-01-01")
    assert declared(backfill_by=hours).backfill_by is hours


def test_a_stream_is_callable_and_keeps_its_docstring():
    def documented(events):
        """What it is for."""
        return events + 1

    stream = declared(function=documented)
    assert stream(1) == 2
    assert stream.description == "What it is for."


def test_importing_definitions_starts_no_jvm():
    code = (
        "import psutil, pipelines.ads\n"
        "from pyspark import SparkContext\n"
        "assert len(list(pipelines.ads.ads)) == 10\n"
        "assert SparkContext._gateway is None\n"
        "assert not psutil.Process().children(recursive=True)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

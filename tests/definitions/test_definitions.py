"""What a user declares wrongly is an error at once, with the stream, the field, the value and the reason."""

import subprocess
import sys

import pytest

from tidemill import (
    BackfillBy,
    DeltaAppend,
    DeltaMerge,
    DeltaSource,
    Expect,
    Feed,
    FileSource,
    Json,
    KafkaSource,
    Pipeline,
    QueryOptions,
)
from tidemill.errors import DefinitionError

FEED = Feed("events", format=Json("id STRING"))


def same(events):
    return events


def declared(pipeline=None, function=same, **fields):
    pipeline = pipeline or Pipeline("shop")
    return pipeline.stream(**{"source": FEED, "sink": DeltaAppend(), **fields})(function)


def two(left, right):
    return left.union(right)


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda: Pipeline("Shop"), "pipeline name 'Shop'"),
        (lambda: Pipeline("../shop"), r"pipeline name '\.\./shop'"),
        (lambda: Pipeline("streaming"), "reserved"),
        (lambda: declared(name="a__b"), "stream name 'a__b'"),
        (lambda: declared(name="x'; DROP"), "stream name"),
        (lambda: Feed("../etc", format=Json("id STRING")), r"feed name '\.\./etc'"),
        (lambda: Feed("events", format="id STRING"), "Json"),
        (lambda: Feed("events", format=Json("id STRING"), rules={"a-b": "true"}), "a-b"),
        (lambda: Feed("events", format=Json("id STRING"), rules={"unparsable": "true"}), "reserved"),
        (lambda: Feed("events", format=Json(" ")), "DDL"),
        (
            lambda: Feed("events", format=Json("id STRING"), max_records_per_batch=0),
            "max_records_per_batch",
        ),
        (lambda: FEED.with_watermark("t", "2 hours"), "stateless"),
        (lambda: FileSource(path="in", format="xml", schema="a INT"), "xml"),
        (lambda: FileSource(path="in", format="json"), "schema is missing"),
        (lambda: FileSource(path="in", format="text", options={"sourceArchiveDir": "in/done"}), "in/done"),
        (KafkaSource, "exactly one"),
        (lambda: KafkaSource(subscribe="a", subscribe_pattern="b"), "exactly one"),
        (lambda: KafkaSource(subscribe="a", options={"minOffsetsPerTrigger": "5"}), "tail unread"),
        (lambda: KafkaSource(subscribe="a", options={"kafka.ssl.key.password": "x"}), "credential"),
        (lambda: DeltaSource(path="s3://bucket/orders"), "is on s3://"),
        (lambda: DeltaSource(path="t").with_watermark("t", "soon"), "'soon'"),
        (lambda: DeltaSource(path="t").with_watermark("t", "1 month"), "1 month"),
        (lambda: DeltaSource(path="t").static().with_watermark("t", "1 hour"), "snapshot"),
        (lambda: declared().with_watermark("t", "1 hour").with_watermark("t", "1 hour"), "already"),
        (lambda: DeltaAppend(partition_by="day"), "list of column names"),
        (lambda: DeltaAppend(partition_by=["a"], cluster_by=["b"]), "not both"),
        (lambda: DeltaMerge(keys=[], sequence_by="n"), "keys is empty"),
        (lambda: DeltaMerge(keys=["id"], sequence_by="n", scd_type=3), "scd_type is 3"),
        (lambda: DeltaMerge(keys=["id"], sequence_by="n", valid_by="t"), "scd_type=2"),
        (lambda: DeltaMerge(keys=["id"], sequence_by="n", except_columns=["n"]), "itself needs"),
        (lambda: declared(backfill_by=""), "name a column"),
        (lambda: declared(backfill_by=["day"]), "name a column of the table, or give BackfillBy"),
        (lambda: BackfillBy("day", every="week", since="2026-01-01"), "'week'; use one of day, hour"),
        (lambda: BackfillBy("day", every="day"), "both every= and since="),
        (lambda: BackfillBy("day", since="2026-01-01"), "both every= and since="),
        (lambda: BackfillBy("day", every="day", since="20260101"), "since is '20260101'"),
        (lambda: BackfillBy("day", every="day", since="2026-02-30"), "since is '2026-02-30'"),
        (lambda: Expect("a b", "true"), "a b"),
        (lambda: Expect("a", "true", on_violation="explode"), "explode"),
        (lambda: Expect("a", ""), "write a condition in SQL"),
        (lambda: QueryOptions(output_mode="all"), "'all'"),
        (lambda: QueryOptions(shuffle_partitions=0), "shuffle_partitions is 0"),
        (lambda: QueryOptions(options={"spark.sql.shuffle.partitions": "3"}), "shuffle_partitions="),
        (lambda: QueryOptions(options={"spark.executor.memory": "3g"}), "target"),
        (lambda: QueryOptions(max_run="a while"), "a while"),
        (lambda: declared(function=two), "2 arguments"),
        (lambda: declared(function=two, source={"left": declared(), "other": declared()}), "same names"),
        (
            lambda: declared(function=two, source={"left": FEED, "right": declared().static()}),
            "beside other sources",
        ),
        (lambda: declared(source="events"), "give a Feed"),
        (lambda: declared(source=declared().static()), "snapshot"),
        (lambda: declared(sink=[]), "sink is"),
        (lambda: declared(sink=[DeltaAppend(), DeltaAppend()]), "own name"),
        (lambda: declared(sink=[DeltaAppend(name="copy")]), "exactly one sink, the main one, has none"),
        (lambda: declared(expect=[Expect("a", "true"), Expect("a", "true")]), "own"),
        (lambda: declared(query=QueryOptions(output_mode="update")), "stateless"),
        (
            lambda: declared(source=declared(name="first"), query=QueryOptions(output_mode="update")),
            "DeltaMerge",
        ),
        (lambda: declared(sink=DeltaMerge(keys=["id"], sequence_by="n")).reading(), "changes()"),
        (lambda: declared().changes(), "append table"),
    ],
)
def test_a_wrong_definition_is_refused_with_the_reason(declare, said):
    with pytest.raises(DefinitionError, match=said):
        declare()


def test_a_refused_stream_is_named_with_its_place():
    with pytest.raises(DefinitionError, match=r"shop/same: .*test_definitions\.py:\d+"):
        declared(sink=[])


def test_a_second_stream_of_one_name_is_refused_with_the_place_of_the_first():
    pipeline = Pipeline("shop")
    declared(pipeline)
    with pytest.raises(DefinitionError, match=r"a stream of that name exists, at test_definitions\.py"):
        declared(pipeline)


def test_streaming_a_merge_table_is_refused_with_the_way_around():
    merged = declared(sink=DeltaMerge(keys=["id"], sequence_by="n"), name="merged")
    with pytest.raises(DefinitionError, match=r"merged\.changes\(\)"):
        declared(source=merged)
    assert declared(source=merged.changes()).upstreams == {merged.name: True}


def test_a_stream_that_reads_its_own_table_is_a_cycle():
    earlier = declared(Pipeline("shop"))
    with pytest.raises(DefinitionError, match="cycle"):
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
        "assert len(list(pipelines.ads.ads)) == 9\n"
        "assert SparkContext._gateway is None\n"
        "assert not psutil.Process().children(recursive=True)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

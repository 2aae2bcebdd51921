"""What a sink may be used for, and a table that belongs to another sink than the one declared now."""

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from tests.support.raising import raises
from tidemill import (
    DeltaAppend,
    DeltaMerge,
    DeltaOverwrite,
    DeltaSource,
    Feed,
    Json,
    Pipeline,
    QueryOptions,
)
from tidemill.definitions.sink import CommitMetadata, SinkContext, Transaction
from tidemill.storage.table_ref import TableRef
from tidemill.testing import multiset

SALE = "shop STRING, amount BIGINT, seq BIGINT"
COMPLETE = QueryOptions(output_mode="complete")
UPDATE = QueryOptions(output_mode="update")
MERGE = DeltaMerge(keys=["shop"], sequence_by="seq")


def same(rows):
    return rows


def sales_of(pipeline, sink=None, function=same):
    feed = Feed("sales", format=Json(SALE))
    return pipeline.stream(source=feed, sink=sink or DeltaAppend(), name="sales")(function)


def totals_of(sink, query, function=None, pipeline=None):
    """A stream that aggregates sales, with its upstream."""
    pipeline = pipeline or Pipeline("shops")
    sales = sales_of(pipeline)
    count = function or (lambda sales: sales.groupBy("shop").agg(F.sum("amount").alias("amount")))
    return sales, pipeline.stream(source=sales, sink=sink, query=query, name="totals")(count)


def sale(shop, amount, seq=1):
    return {"shop": shop, "amount": amount, "seq": seq}


def clustering(path):
    """The clustering columns of a table, from the newest domain metadata in its log."""
    columns = None
    for file in sorted((path / "_delta_log").glob("*.json")):
        for action in map(json.loads, file.read_text().splitlines()):
            domain = action.get("domainMetadata", {})
            if domain.get("domain") == "delta.clustering":
                columns = json.loads(domain["configuration"])["clusteringColumns"]
    return columns


# Which sink takes which output mode


@pytest.mark.parametrize(
    ("sink", "query", "code", "value"),
    [
        (DeltaMerge(keys=["shop"], sequence_by="n"), COMPLETE, "sink-unsuitable", "DeltaOverwrite()"),
        (DeltaAppend(), COMPLETE, "sink-unsuitable", "DeltaOverwrite()"),
        ([DeltaAppend(name="copy"), DeltaOverwrite()], COMPLETE, "sink-unsuitable", "sink 'copy'"),
        (DeltaOverwrite(), UPDATE, "sink-unsuitable", "'update'"),
        (DeltaOverwrite(), QueryOptions(), "sink-unsuitable", "output_mode='complete'"),
        (DeltaAppend(), UPDATE, "sink-unsuitable", "DeltaMerge"),
        ([DeltaAppend(name="copy"), DeltaMerge(keys=["shop"])], UPDATE, "sink-unsuitable", "sink 'copy'"),
        (DeltaMerge(keys=["shop"]), QueryOptions(), "sink-unsuitable", "'append'"),
    ],
)
def test_a_sink_that_cannot_take_the_output_mode_is_refused(sink, query, code, value):
    with raises(code, value):
        totals_of(sink, query)


@pytest.mark.parametrize(
    ("declare", "code", "value"),
    [
        (lambda: DeltaMerge(keys=["id"], scd_type=2), "arguments-conflict", "sequence_by"),
        (lambda: DeltaMerge(keys=["id"], sequence_by=""), "argument-invalid", "sequence_by is ''"),
        (lambda: DeltaOverwrite(partition_by="day"), "argument-invalid", "partition_by is 'day'"),
        (
            lambda: DeltaOverwrite(partition_by=["a"], cluster_by=["b"]),
            "arguments-conflict",
            "DeltaOverwrite: ",
        ),
    ],
)
def test_a_sink_that_is_declared_wrongly_is_refused(declare, code, value):
    with raises(code, value):
        declare()


def test_a_table_that_is_overwritten_is_read_as_a_snapshot_only():
    _, totals = totals_of(DeltaOverwrite(), COMPLETE)
    for reading, code in ((totals.reading, "table-not-streamable"), (totals.changes, "change-feed-missing")):
        with raises(code, "totals.static()"):
            reading()
    assert totals.static().mode == "static"


# DeltaOverwrite


def test_the_whole_result_replaces_the_table_in_one_commit_per_batch(scratch):
    def best_two(sales):
        totals = sales.groupBy("shop").agg(F.sum("amount").alias("amount"))
        return totals.orderBy(F.desc("amount")).limit(2)

    sales, totals = totals_of(DeltaOverwrite(partition_by=["shop"]), COMPLETE, best_two)
    path, ids = Path(scratch.lake.table(totals.name).uri), set()
    runs = [
        ([sale("a", 5), sale("b", 3), sale("c", 1)], [("a", 5), ("b", 3)]),
        ([sale("c", 9)], [("c", 10), ("a", 5)]),  # b leaves the result
        ([sale("a", -5), sale("c", -10)], [("b", 3), ("a", 0)]),
    ]
    for arriving, expected in runs:
        scratch.run(sales, [arriving])
        [result] = scratch.run(totals)
        assert scratch.rows(totals, "shop", "amount") == multiset(expected)
        assert result.batches[-1].rows_written == 2
        table = TableRef.at(path).open()
        assert table.metadata().partition_columns == ["shop"]
        ids.add(table.metadata().id)
    assert len(ids) == 1
    batches = [list(commit.transactions.values()) for commit in TableRef.at(path).log.commits(1)]
    assert batches == [[batch] for batch in range(len(batches))]
    assert scratch.run(totals)[0].outcome == "idle"


@pytest.mark.parametrize("layout", ["partition_by", "cluster_by"])
def test_an_overwrite_outside_the_native_sink_is_the_same(engine, tmp_path, layout):
    spark, path = engine.new(), tmp_path / "table"
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    sink = DeltaOverwrite(**{layout: ["shop"]})
    batches = [[("a", 1), ("b", 2)], [("b", 3)], []]
    sink.prepare(
        spark, SinkContext(TableRef.at(path)), spark.createDataFrame([], "shop STRING, amount BIGINT").schema
    )
    before = TableRef.at(path).open().metadata()
    for number, batch in enumerate(batches):
        rows = spark.createDataFrame(batch, "shop STRING, amount BIGINT")
        for _ in range(2):  # the second time Delta has it
            sink.commit(rows, TableRef.at(path), Transaction("query", number), CommitMetadata(number, "plan"))
        table = TableRef.at(path).open()
        assert table.version() == number + 1
        written = table.to_pyarrow_table().to_pylist()
        assert multiset(row.values() for row in written) == multiset(batch)
    assert (table.metadata().id, table.metadata().partition_columns) == (before.id, before.partition_columns)
    assert clustering(path) == ([["shop"]] if layout == "cluster_by" else None)


def test_the_native_sink_keeps_the_clustering(scratch):
    sales, totals = totals_of(DeltaOverwrite(cluster_by=["shop"]), COMPLETE)
    for amount in (1, 2):
        scratch.run(sales, [[sale("a", amount)]])
        scratch.run(totals)
    assert scratch.rows(totals, "shop", "amount") == multiset([("a", 3)])
    assert clustering(Path(scratch.lake.table(totals.name).uri)) == [["shop"]]


# Order in update mode


@pytest.mark.campaign
def test_without_a_sequence_the_newest_batch_wins(scratch):
    sink = DeltaMerge(keys=["shop"], apply_as_deletes="amount = 0")
    sales, totals = totals_of(sink, UPDATE)
    for arriving in ([sale("a", 9), sale("b", 1)], [sale("a", -5)], [sale("b", -1)]):
        scratch.run(sales, [arriving])
        scratch.run(totals)
    assert scratch.rows(totals, "shop", "amount") == multiset([("a", 4)])
    table = scratch.lake.table(totals.name).open().to_pyarrow_table()
    assert table.num_rows == 1  # a delete leaves no tombstone


@pytest.mark.campaign
def test_updates_whose_sequence_does_not_grow_are_counted(scratch):
    sales, totals = totals_of(DeltaMerge(keys=["shop"], sequence_by="amount"), UPDATE)
    counts = []
    for arriving in (
        [sale("a", 9), sale("b", 1)],
        [sale("a", -5), sale("b", 2), sale("c", 1)],
        [sale("a", 5)],
    ):
        scratch.run(sales, [arriving])
        [result] = scratch.run(totals)
        counts += [(batch.rows_written, batch.rows_ignored) for batch in result.batches]
    assert counts == [(2, 0), (2, 1), (0, 1)]
    assert scratch.rows(totals, "shop", "amount") == multiset([("a", 9), ("b", 3), ("c", 1)])


def test_two_rows_of_one_key_in_a_batch_are_refused_without_a_sequence(scratch):
    def by_amount(sales):
        return sales.groupBy("shop", "amount").count()

    sales, totals = totals_of(DeltaMerge(keys=["shop"]), UPDATE, by_amount)
    scratch.run(sales, [[sale("a", 1), sale("a", 2)]])
    with raises("merge-key-twice", "shops/totals", "shop", "keys="):
        scratch.run(totals)
    assert scratch.rows(totals) == Counter()


# A table of another sink


OTHER_SINKS = [
    (DeltaAppend(), MERGE, ("written by DeltaAppend()", "is now DeltaMerge(")),
    (MERGE, DeltaMerge(keys=["shop"], sequence_by="seq", scd_type=2), ("scd_type=2",)),
    (MERGE, DeltaAppend(), ("written by DeltaMerge(keys=['shop']", "is now DeltaAppend()")),
    (MERGE, DeltaMerge(keys=["shop", "amount"], sequence_by="seq"), ("keys=['amount', 'shop']",)),
    (MERGE, DeltaMerge(keys=["shop"], sequence_by="amount"), ("sequence_by='amount'",)),
    (
        DeltaMerge(keys=["shop"], sequence_by="seq", scd_type=2),
        DeltaMerge(keys=["shop"], sequence_by="seq", scd_type=2, valid_by="amount"),
        ("valid_by='amount'",),
    ),
]


@pytest.mark.parametrize(
    ("before", "after", "values"),
    [
        *OTHER_SINKS[:2],  # the kind of the sink, and one of the values that it records
        *(pytest.param(*case, marks=pytest.mark.campaign) for case in OTHER_SINKS[2:]),
    ],
)
def test_a_sink_that_the_table_was_not_written_by_is_refused(scratch, before, after, values):
    stream = sales_of(Pipeline("shops"), before)
    scratch.run(stream, [[sale("a", 1)]])
    rows = scratch.rows(stream, "shop", "amount")
    changed = sales_of(Pipeline("shops"), after)
    scratch.arrive(changed, "rows", [sale("b", 2)])
    with raises("sink-changed", "shops/sales", *values):
        scratch.run(changed)
    assert scratch.rows(stream, "shop", "amount") == rows
    scratch.run(stream)
    assert scratch.rows(stream, "shop", "amount") == multiset([("a", 1), ("b", 2)])


@pytest.mark.parametrize(
    ("before", "after"),
    [(DeltaAppend(), MERGE), pytest.param(MERGE, DeltaAppend(), marks=pytest.mark.campaign)],
)
def test_a_table_shows_its_sink_where_the_manifest_does_not(scratch, before, after):
    stream = sales_of(Pipeline("shops"), before)
    scratch.run(stream, [[sale("a", 1)]])
    manifest = Path(scratch.lake.records(stream.name).uri()) / "manifest.json"
    content = json.loads(manifest.read_text())
    content["generations"][0].pop("sinks")
    manifest.write_text(json.dumps(content))
    with raises("sink-changed", "shops/sales"):
        scratch.run(sales_of(Pipeline("shops"), after), [[sale("b", 2)]])


def test_a_second_sink_that_changes_is_refused_by_its_table(scratch):
    latest = DeltaMerge(keys=["shop"], sequence_by="seq", name="latest")
    scratch.run(sales_of(Pipeline("shops"), [latest, DeltaAppend()]), [[sale("a", 1)]])
    changed = sales_of(Pipeline("shops"), [DeltaAppend(name="latest"), DeltaAppend()])
    with raises("sink-changed", "sales__latest", "DeltaMerge("):
        scratch.run(changed, [[sale("a", 2)]])


def test_another_output_mode_over_state_is_refused(scratch):
    """A group in state that does not change again would never be emitted."""
    sink, pipeline = DeltaMerge(keys=["shop"], sequence_by="amount"), Pipeline("shops")
    sales, totals = totals_of(sink, UPDATE, pipeline=pipeline)
    scratch.run(sales, [[sale("a", 1)]])
    scratch.run(totals)
    _, changed = totals_of(sink, QueryOptions())
    with raises("output-mode-changed", "'update'", "'append'"):
        scratch.run(changed)
    assert scratch.run(totals)[0].outcome == "idle"


# Reserved columns


@pytest.mark.parametrize("column", ["_deleted", "_BATCH", "__START_AT", "__END_AT"])
def test_an_output_with_a_reserved_column_is_refused(scratch, column):
    stream = sales_of(Pipeline("shops"), function=lambda sales: sales.withColumn(column, F.lit(1)))
    with raises("column-reserved", "shops/sales", f"'{column}'"):
        scratch.run(stream, [[sale("a", 1)]])


def test_the_origin_is_reserved_where_the_stream_is_no_feed(scratch, engine, tmp_path):
    rows = engine.new().createDataFrame([("a", "b")], "id STRING, _origin STRING")
    rows.write.format("delta").save(str(tmp_path / "table"))
    stream = Pipeline("shops").stream(source=DeltaSource(path=str(tmp_path / "table")), sink=DeltaAppend())(
        same
    )
    with raises("column-reserved", "'_origin'"):
        scratch.run(stream)


@pytest.mark.parametrize("column", ["_origin", "_raw"])
def test_the_schema_of_a_feed_with_a_reserved_column_is_refused(scratch, column):
    feed = Feed("sales", format=Json(f"id STRING, {column} STRING"))
    stream = Pipeline("shops").stream(source=feed, sink=DeltaAppend(), name="sales")(same)
    with raises("column-reserved", "feed sales", f"'{column}'"):
        scratch.run(stream, [[{"id": "a"}]])


def test_a_merge_table_with_a_column_of_the_change_feed_is_refused(scratch):
    stream = sales_of(Pipeline("shops"), MERGE, lambda sales: sales.withColumn("_commit_version", F.lit(1)))
    with raises("column-reserved", "withColumnRenamed('_commit_version', 'commit_version')"):
        scratch.run(stream, [[sale("a", 1)]])


# A table that was never written


def test_a_first_function_that_spark_refuses_does_not_pin_the_schema(scratch):
    pipeline = Pipeline("shops")
    sales, wrong = totals_of(DeltaAppend(), QueryOptions(), pipeline=pipeline)  # needs a watermark
    scratch.run(sales, [[sale("a", 1)]])
    with raises("watermark-missing", "shops/"):
        scratch.run(wrong)
    _, right = totals_of(
        DeltaMerge(keys=["shop"]),
        UPDATE,
        lambda sales: sales.groupBy("shop").agg(F.count("*").alias("number")),
    )
    scratch.run(right)
    assert scratch.rows(right, "shop", "number") == multiset([("a", 1)])
    scratch.run(sales, [[sale("a", 1)]])
    scratch.run(right)
    assert scratch.rows(right, "shop", "number") == multiset([("a", 2)])


def test_a_table_with_a_batch_keeps_its_schema_although_it_has_no_row(scratch):
    scratch.run(
        sales_of(Pipeline("shops"), function=lambda sales: sales.where("amount > 5")), [[sale("a", 1)]]
    )
    changed = sales_of(Pipeline("shops"), function=lambda sales: sales.drop("seq"))
    with raises("column-removed", "'seq'"):
        scratch.run(changed, [[sale("a", 2)]])

"""What `plan` says about pipelines that have never run: streams are built over the tables that do not exist yet."""

import json
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from tidemill import (
    DeltaAppend,
    DeltaMerge,
    DeltaSource,
    Expect,
    Feed,
    FileSource,
    Json,
    Pipeline,
    QueryOptions,
)
from tidemill.definitions.source import StreamTable
from tidemill.operations.edits.code_changes import code_changes
from tidemill.text.names import StreamName

ORDER = "id INT, customer STRING, at TIMESTAMP, price DECIMAL(10, 2), tags MAP<STRING, STRING>"
CUSTOMER = "customer STRING, city STRING, seq INT"
UPDATE = QueryOptions(output_mode="update")
MERGE = DeltaMerge(keys=["customer"])
CHANGING = DeltaMerge(keys=["customer"], sequence_by="seq")


class Shop:
    """A pipeline of which nothing has run, with two feeds in a scratch lake."""

    def __init__(self, scratch):
        self.scratch = scratch
        self.pipeline = Pipeline("shop")
        self.orders = self.stream(lambda events: events, name="orders", source=Feed("orders", Json(ORDER)))
        self.customers = self.stream(
            lambda events: events,
            name="customers",
            source=Feed("customers", Json(CUSTOMER)),
            sink=CHANGING,
        )
        for feed in ("orders", "customers"):
            (scratch.landing / feed).mkdir(parents=True)

    def stream(self, function, *, sink=None, **options):
        return self.pipeline.stream(sink=sink or DeltaAppend(), **options)(function)

    def planned(self, *streams):
        """Return the verdicts; planning changes nothing."""
        changes = list(code_changes(streams, self.scratch.target, self.scratch.engine))
        assert list(Path(self.scratch.lake.uri).rglob("*")) == []
        return changes


@pytest.fixture
def shop(scratch):
    return Shop(scratch)


def by_customer(orders):
    return orders.groupBy("customer").agg(F.count("*").alias("orders"), F.sum("price").alias("spent"))


def test_a_stream_that_spark_refuses_is_refused_before_its_upstream_has_run(shop):
    counted = shop.stream(
        lambda orders: orders.groupBy("customer").agg(F.countDistinct("id").alias("n")),
        name="counted",
        source=shop.orders,
        sink=MERGE,
        query=UPDATE,
    )
    orders, counted = shop.planned(shop.orders, counted)
    assert (orders.kind, orders.error) == ("safe", None)
    assert (counted.kind, counted.error.code) == ("refused", "operation-unsupported")
    assert "F.approx_count_distinct" in counted.fix


def test_a_column_that_the_upstream_does_not_return_is_refused(shop):
    wrong = shop.stream(lambda orders: orders.select("_batch"), name="wrong", source=shop.orders)
    (change,) = shop.planned(wrong)
    assert (change.kind, change.error.code) == ("refused", "query-invalid")


def test_a_chain_is_planned_over_the_columns_of_each_stream(shop):
    totals = shop.stream(by_customer, name="totals", source=shop.orders, sink=MERGE, query=UPDATE)
    large = shop.stream(
        lambda totals: totals.where("_change_type <> 'delete'").select("customer", "spent", "orders"),
        name="large",
        source=totals.changes(),
        expect=[Expect("spent", "orders > 0", on_violation="quarantine")],
    )
    first = shop.stream(lambda large: large.limit(3), name="first", source=large, sink=MERGE, query=UPDATE)
    *upstreams, refused = shop.planned(shop.orders, totals, large, first)
    assert [change.kind for change in upstreams] == ["safe"] * 3
    assert (refused.kind, refused.error.code) == ("refused", "operation-unsupported")
    assert [change.kind for change in shop.planned(first)] == ["refused"], "its upstreams are not selected"


def test_a_static_side_is_planned(shop):
    def joined(how):
        return lambda orders, customers: orders.join(customers, "customer", how)

    sources = {"orders": shop.orders, "customers": shop.customers.static()}
    inner = shop.stream(joined("inner"), name="inner", source=sources)
    outer = shop.stream(joined("right_outer"), name="outer", source=sources)
    inner, outer = shop.planned(inner, outer)
    assert inner.kind == "safe"
    assert (outer.kind, outer.error.code) == ("refused", "operation-unsupported")


def test_a_function_that_reads_a_snapshot_cannot_be_checked_before_it_exists(shop):
    def known(orders, customers):
        return orders.where(F.col("customer").isin([row.customer for row in customers.collect()]))

    sources = {"orders": shop.orders, "customers": shop.customers.static()}
    (change,) = shop.planned(shop.stream(known, name="known", source=sources))
    assert (change.kind, change.error.code) == ("unknown", "upstream-not-run")
    assert change.what.startswith("it cannot be checked before shop/customers has run")


def test_a_stream_of_an_upstream_that_cannot_be_built_cannot_be_checked(shop):
    wrong = shop.stream(lambda orders: orders.orderBy("id"), name="wrong", source=shop.orders)
    reader = shop.stream(lambda rows: rows, name="reader", source=wrong)
    last = shop.stream(lambda rows: rows, name="last", source=reader)
    wrong, reader, last = shop.planned(wrong, reader, last)
    assert [wrong.kind, reader.kind, last.kind] == ["refused", "unknown", "unknown"]
    assert "it cannot be checked before shop/wrong has run" in reader.what
    assert "it cannot be checked before shop/reader has run" in last.what
    assert "tidemill plan shop/wrong" in reader.fix


def test_a_stream_of_an_upstream_without_a_definition_cannot_be_checked(shop):
    table = StreamTable(stream=StreamName("depot", "parcels"), mode="append", is_merge=False)
    (change,) = shop.planned(shop.stream(lambda rows: rows, name="parcels", source=table))
    assert (change.kind, change.error.code) == ("unknown", "upstream-not-run")


@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_function_gets_the_columns_before_the_first_run_that_it_gets_later(scd_type, shop, scratch):
    received = []

    def function(orders, changes, snapshot):
        received.append([rows.dtypes for rows in (orders, changes, snapshot)])
        return orders.select("customer").union(changes.select("customer"))

    versions = shop.stream(
        lambda rows: rows.select("customer", "city", "seq"),
        name="versions",
        source=shop.customers.changes(),
        sink=DeltaMerge(keys=["customer"], sequence_by="seq", scd_type=scd_type),
    )
    sources = {"orders": shop.orders, "changes": versions.changes(), "snapshot": versions.static()}
    reader = shop.stream(function, name="reader", source=sources)
    assert [change.kind for change in shop.planned(reader)] == ["safe"]

    scratch.drop_file("orders", [json.dumps({"id": 1, "customer": "x"})])
    scratch.drop_file("customers", [json.dumps({"customer": "x", "city": "y", "seq": 1})])
    results = scratch.run_all([shop.orders, shop.customers, versions, reader])
    assert [result.error for result in results] == [None] * 4
    before, *later = received
    assert later[-1] == before


def test_warnings_of_a_query_are_shown_before_and_after_its_first_run(shop, scratch):
    later = shop.stream(lambda rows: rows, name="later", source=shop.orders)
    pairs = shop.stream(
        lambda orders, others: orders.join(others.select("customer"), "customer"),
        name="pairs",
        source={"orders": shop.orders.with_watermark("at", "1 hour"), "others": later},
    )
    windows = shop.stream(
        lambda orders: (
            orders.withColumn("day", F.to_timestamp("customer"))
            .groupBy(F.window("day", "1 day"))
            .agg(F.count("*").alias("orders"))
            .select("window.start", "orders")
        ),
        name="windows",
        source=shop.orders.with_watermark("at", "1 hour"),
        sink=DeltaMerge(keys=["start"]),
        query=UPDATE,
    )
    pairs_change, windows_change = shop.planned(pairs, windows)
    assert "never evicts rows of both sides" in pairs_change.warnings[0]
    assert "its windows of to_timestamp" in windows_change.warnings[0]

    scratch.drop_file("orders", [json.dumps({"id": 1, "customer": "x", "at": "2026-01-01T00:00:00Z"})])
    results = scratch.run_all([shop.orders, later, pairs])
    assert [result.error for result in results] == [None] * 3
    (after,) = code_changes([pairs], scratch.target, scratch.engine)
    assert (after.kind, after.warnings) == ("nothing", pairs_change.warnings)


def test_inferred_columns_are_shown_before_the_first_run_and_known_to_readers(shop, tmp_path):
    folder = tmp_path / "parcels"
    folder.mkdir()
    (folder / "1.json").write_text('{"id": 1, "weight": 2.5}')
    source = FileSource(path=str(folder), format="json", schema="infer")
    parcels = shop.stream(lambda parcels: parcels, name="parcels", source={"parcels": source})
    heavy = shop.stream(lambda parcels: parcels.where("weight > 2"), name="heavy", source=parcels)
    parcels, heavy = shop.planned(parcels, heavy)
    assert parcels.schemas == {"parcels": "`id` bigint, `weight` double"}
    assert (parcels.kind, heavy.kind, heavy.schemas) == ("safe", "safe", {})


def test_a_table_of_no_stream_that_is_missing_is_refused(shop, tmp_path):
    rows = DeltaSource(path=str(tmp_path / "nothing"))
    (change,) = shop.planned(shop.stream(lambda rows: rows, name="rows", source={"rows": rows}))
    assert (change.kind, change.error.code) == ("refused", "upstream-table-missing")

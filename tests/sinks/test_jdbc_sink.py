"""Rows of batches in a real Postgres: exactly once, compared with plain Python."""

import pickle
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from tests.servers.postgres import PASSWORD, VARIABLE, PostgresServer
from tests.sinks.streams import sales_stream
from tests.support.raising import raises
from tidemill import DeltaAppend, Feed, JdbcSink, Json, Pipeline, QueryOptions
from tidemill import functions as F
from tidemill.definitions.sink import SinkContext
from tidemill.storage.table_ref import TableRef
from tidemill.testing import multiset

ARRIVALS = [
    [("a", 5, 1), ("b", 3, 1), ("a", 6, 3), ("a", 4, 2)],
    [("a", 9, 2), ("c", 7, 1)],
    [("b", 2, 1), ("c", None, 5), ("a", 1, 4)],
]


def prices_stream(*sinks, **declared):
    feed = Feed("prices", format=Json("shop STRING, price BIGINT, seq BIGINT"), max_files_per_batch=1)
    return Pipeline("shops").stream(source=feed, sink=list(sinks), name="prices", **declared)(
        lambda prices: prices
    )


def both_sinks(table):
    """One that appends, one that merges, and a table of the lake."""
    return (
        JdbcSink(table, name="log"),
        JdbcSink(f"{table}_now", keys=["shop"], sequence_by="seq"),
        DeltaAppend(),
    )


def prices(*rows):
    return [{"shop": shop, "price": price, "seq": seq} for shop, price, seq in rows]


def current(*arrivals):
    """The row of each shop with the highest sequence; of a later batch also one with the same."""
    rows = {}
    for batch in arrivals:
        newest = {}
        for shop, price, seq in batch:
            if shop not in newest or seq > newest[shop][1]:
                newest[shop] = price, seq
        rows |= {shop: row for shop, row in newest.items() if shop not in rows or row[1] >= rows[shop][1]}
    return multiset((shop, *row) for shop, row in rows.items())


@pytest.fixture
def table(postgres, scratch, monkeypatch):
    """A table that does not exist, in the database of the target."""
    monkeypatch.setenv(VARIABLE, PASSWORD)
    scratch.databases["default"] = postgres.database
    return postgres.new_table("prices")


def now(table):
    return replace(table, name=f"{table.name}_now")


def test_rows_of_every_run_are_appended_and_merged(scratch, table):
    stream = prices_stream(*both_sinks(str(table)))
    results = scratch.run(stream, [prices(*rows) for rows in ARRIVALS])
    assert [result.total("rows_written") for result in results] == [4, 2, 3]
    everything = multiset(row for rows in ARRIVALS for row in rows)
    assert table.rows() == everything
    assert scratch.rows(stream, "shop", "price", "seq") == everything
    assert now(table).rows() == current(*ARRIVALS)
    assert table.batches.rows("sink, table_name, batch_id, stream") == multiset(
        [("log", "prices", 2, "shops/prices"), ("jdbc", "prices_now", 2, "shops/prices")]
    )


def test_values_of_every_type_are_the_same_in_postgres(scratch, table):
    def typed(sales):
        return sales.select(
            F.lit(True).alias("yes"),
            F.col("amount").cast("tinyint").alias("tiny"),
            F.col("amount").cast("int").alias("number"),
            F.lit("0.1").cast("float").alias("single"),
            F.lit(float("-inf")).alias("endless"),
            F.lit("12345678901234567890.123456789").cast("decimal(38,18)").alias("exact"),
            F.lit("tab\there\\N\nÄ'\"").alias("te%xt"),
            F.lit(b"\x00\xff\\").alias("bytes"),
            F.lit("0009-02-03").cast("date").alias("day"),
            F.to_timestamp(F.lit("1880-01-01T00:00:00.123456Z")).alias("at"),
            F.lit("2026-03-29 02:30:00.000001").cast("timestamp_ntz").alias("local"),
            F.struct(F.col("shop"), F.lit(None).cast("int").alias("none")).alias("nested"),
            F.array(F.lit(1), F.lit(None)).alias("list"),
            F.lit(None).cast("string").alias("nothing"),
        )

    tokyo = QueryOptions(options={"spark.sql.session.timeZone": "Asia/Tokyo"})  # 9:18:59 ahead in 1880
    stream = sales_stream(JdbcSink(str(table)), function=typed, query=tokyo)
    scratch.run(stream, [[{"shop": "a", "amount": 7}]])
    (row,) = table.server.execute(f"TABLE {table}")
    assert row == (
        True,
        7,
        7,
        pytest.approx(0.1),
        float("-inf"),
        Decimal("12345678901234567890.123456789"),
        "tab\there\\N\nÄ'\"",
        b"\x00\xff\\",
        date(9, 2, 3),
        datetime(1880, 1, 1, 0, 0, 0, 123456, UTC),
        datetime(2026, 3, 29, 2, 30, 0, 1),  # noqa: DTZ001 - without a time zone
        {"shop": "a", "none": None},
        [1, None],
        None,
    )


@pytest.mark.parametrize("row", [(None, 1, 1), ("a", 1, None)], ids=["a key", "the order"])
def test_a_row_without_a_key_or_an_order_stops_the_batch(scratch, table, row):
    stream = prices_stream(JdbcSink(str(table), keys=["shop"], sequence_by="seq"))
    with raises("merge-key-null", "shops/prices", "shop, seq"):
        scratch.run(stream, [prices(("b", 1, 1), row)])
    assert table.rows() == multiset([])
    assert table.batches.rows() == multiset([])


def test_rows_that_postgres_refuses_are_an_error_of_one_line(scratch, table):
    table.server.execute(
        f"CREATE TABLE {table} (shop varchar(1), price bigint CHECK (price > 0), seq bigint)"
    )
    stream = prices_stream(JdbcSink(str(table)))
    with raises("sink-write-refused", "shops/prices", "127.0.0.1", "violates check constraint") as raised:
        scratch.run(stream, [prices(("a", 1, 1), ("b", -1, 1))])
    assert "\n" not in str(raised.value)
    assert PASSWORD not in str(raised.value)
    assert table.rows() == multiset([])
    table.server.execute(f"ALTER TABLE {table} DROP CONSTRAINT prices_price_check")
    scratch.run(stream)
    assert table.rows() == multiset([("a", 1, 1), ("b", -1, 1)])


def test_a_wrong_password_is_an_error_of_one_line(scratch, table, monkeypatch):
    monkeypatch.setenv(VARIABLE, "another-pass")
    with raises("database-access-refused", "shops/prices", "127.0.0.1", "tidemill.toml") as raised:
        scratch.run(prices_stream(JdbcSink(str(table))), [prices(("a", 1, 1))])
    assert "another-pass" not in str(raised.value)
    assert "\n" not in str(raised.value)


def view_counts(*sinks, **declared):
    """A stream of updates: the number of views of each page so far."""
    shop = Pipeline("shops")
    views = shop.stream(
        source=Feed("views", format=Json("page STRING, n BIGINT")), sink=DeltaAppend(), name="views"
    )(lambda views: views)

    def counts(views):
        return views.groupBy("page").agg(F.sum("n").alias("n"))

    query = QueryOptions(output_mode="update", shuffle_partitions=1)
    return shop.stream(source=views, sink=list(sinks), name="counts", query=query, **declared)(counts)


def test_updates_replace_the_rows_of_their_keys(scratch, table):
    stream = view_counts(JdbcSink(str(table), keys=["page"]))
    batches = [[("a", 1), ("b", 2), ("a", 3)], [("a", -2)], [("c", 1)]]
    scratch.run(stream, [[{"page": page, "n": n} for page, n in rows] for rows in batches])
    sums = Counter()
    for rows in batches:
        for page, n in rows:
            sums[page] += n
    assert table.rows("page, n") == multiset(sums.items())


@pytest.mark.parametrize(
    ("declare", "code", "value"),
    [
        (lambda: JdbcSink("orders"), "argument-invalid", "'schema.name'"),
        (lambda: JdbcSink('a.b"; DROP TABLE x; --'), "argument-invalid", "'schema.name'"),
        (lambda: JdbcSink("a.b.c"), "argument-invalid", "'schema.name'"),
        (lambda: JdbcSink(f"a.{'b' * 64}"), "argument-invalid", "63"),
        (lambda: JdbcSink(None), "argument-invalid", "None"),
        (lambda: JdbcSink("a.b", keys="id"), "argument-invalid", "keys"),
        (lambda: JdbcSink("a.b", keys=["id", "id"]), "argument-invalid", "keys"),
        (lambda: JdbcSink("a.b", keys=["id"], sequence_by=""), "argument-invalid", "sequence_by"),
        (lambda: JdbcSink("a.b", sequence_by="seq"), "arguments-conflict", "keys="),
        (lambda: prices_stream(JdbcSink("a.b", keys=["id"])), "sink-unsuitable", "sequence_by"),
        (lambda: view_counts(JdbcSink("a.b")), "sink-unsuitable", "keys=..."),
    ],
)
def test_a_sink_that_is_declared_wrongly_is_refused(declare, code, value):
    with raises(code, value):
        declare()


def test_the_whole_result_is_refused():
    assert "DeltaOverwrite" in JdbcSink("a.b", keys=["id"]).refuses("complete")
    assert JdbcSink("a.b", keys=["id"]).refuses("update") is None
    assert JdbcSink("a.b").refuses("append") is None


def test_what_is_shipped_names_the_password_and_does_not_hold_it(scratch, monkeypatch):
    monkeypatch.setenv(VARIABLE, PASSWORD)
    scratch.databases["default"] = PostgresServer(1).database
    connection = JdbcSink("a.b").connection(scratch.target)
    assert PASSWORD.encode() not in pickle.dumps(connection)
    assert connection.connect_arguments()["password"] == PASSWORD


def test_a_missing_package_is_named_by_the_sink_alone(scratch, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    scratch.databases["default"] = PostgresServer(1).database
    sink = JdbcSink("a.b")
    monkeypatch.setenv(VARIABLE, PASSWORD)
    with raises("postgres-not-installed", "psycopg", "pip install 'tidemill[postgres]'"):
        sink.last_batch(SinkContext(TableRef.at("t"), sink.connection(scratch.target)), "q")

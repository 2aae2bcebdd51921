"""Streams of short runs next to queries that are never stopped: after each run both tables are the same."""

import random
from datetime import UTC, datetime, timedelta
from functools import partial

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tidemill import DeltaAppend, Feed, Json, Pipeline, QueryOptions
from tidemill import functions as F
from tidemill.run.spark.engine import session_of
from tidemill.storage.table_ref import TableRef

INPUTS = ("a", "b", "c")
DELAYS = {"a": "10 minutes", "b": "25 minutes", "c": "5 minutes"}
START = datetime(2026, 1, 1, tzinfo=UTC)


def _windowed(a, b, c):
    """Events of all inputs in each quarter of an hour: a union."""
    window = F.window("at", "15 minutes")
    return a.unionByName(b).unionByName(c).groupBy(window, "id").count().select("window.start", "id", "count")


def _joined(a, b, c):
    """Events of `a` with those of `b` and `c` that follow, or without any: an outer join."""
    others = b.unionByName(c).select(F.col("id").alias("other"), F.col("at").alias("followed_at"))
    near = F.expr("other = id AND followed_at BETWEEN at AND at + INTERVAL 20 MINUTES")
    return a.join(others, near, "left").select("id", "at", "followed_at")


FUNCTIONS = {"windowed": _windowed, "joined": _joined}


def streams(policy: str):
    shop = Pipeline("shop")
    inputs = {
        name: shop.stream(
            source=Feed(name, format=Json("id STRING, at TIMESTAMP")), sink=DeltaAppend(), name=name
        )(lambda rows: rows)
        for name in INPUTS
    }
    sources = {name: stream.with_watermark("at", DELAYS[name]) for name, stream in inputs.items()}
    options = QueryOptions(shuffle_partitions=1, watermark_policy=policy)
    declare = partial(shop.stream, source=sources, sink=DeltaAppend(), query=options)
    return [declare(name=name)(function) for name, function in FUNCTIONS.items()]


class AlwaysOn:
    """The same functions in plain Spark, in queries that run until the end."""

    def __init__(self, spark, scratch, folder, policy) -> None:
        self.tables = {name: TableRef.at(folder / name) for name in FUNCTIONS}
        spark.conf.set("spark.sql.shuffle.partitions", "1")
        spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", policy)
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        self.queries = []
        for name, function in FUNCTIONS.items():
            inputs = (
                spark.readStream.format("delta")
                .load(str(scratch.landing / one))
                .withWatermark("at", DELAYS[one])
                for one in INPUTS
            )
            writer = function(*inputs).writeStream.format("delta").trigger(processingTime="0 seconds")
            writer = writer.option("checkpointLocation", str(folder / f"{name}.checkpoint"))
            self.queries.append(writer.start(self.tables[name].uri))

    def follow(self) -> None:
        for query in self.queries:
            query.processAllAvailable()

    def stop(self) -> None:
        for query in self.queries:
            query.stop()


def news(chance: random.Random, time: datetime) -> list[dict]:
    """A few events around a time, those of the last quarter of an hour out of order."""
    return [
        {"id": f"k{chance.randrange(3)}", "at": time - timedelta(seconds=chance.randrange(900))}
        for _ in range(chance.randrange(1, 5))
    ]


def put(table: str, rows: list[dict]) -> None:
    schema = pa.schema({"id": pa.string(), "at": pa.timestamp("us", "UTC")})
    write_deltalake(table, pa.Table.from_pylist(rows, schema), mode="append")


@pytest.mark.parametrize(
    ("runs", "seed", "policy"),
    [
        (6, 1, "min"),
        *(
            pytest.param(30, seed, policy, marks=pytest.mark.campaign)
            for seed in (2, 3)
            for policy in ("min", "max")
        ),
    ],
)
def test_each_run_ends_where_a_query_that_never_stops_would_be(scratch, tmp_path, runs, seed, policy):
    chance, time = random.Random(seed), START
    both = streams(policy)
    for name in INPUTS:
        put(scratch.lake.table(both[0].sources[name].upstream).uri, [])
        put(str(scratch.landing / name), [])
    with session_of(scratch.engine) as spark:
        peer = AlwaysOn(spark, scratch, tmp_path / "always-on", policy)
        try:
            for _ in range(runs):
                time += timedelta(minutes=chance.randrange(5, 40))
                for name in chance.sample(INPUTS, chance.randrange(1, 4)):
                    rows = news(chance, time)
                    put(scratch.lake.table(both[0].sources[name].upstream).uri, rows)
                    put(str(scratch.landing / name), rows)
                peer.follow()
                for stream in both:
                    scratch.run(stream)
                    assert scratch.rows(stream) == scratch.table_rows(peer.tables[stream.name.stream]), (
                        stream.name
                    )
        finally:
            peer.stop()
    assert all(scratch.rows(stream) for stream in both)

"""Streams of short runs next to queries that are never stopped: after each run both tables are the same.

At the end, where no row was late, they are also what a computation over all rows at once returns.
"""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tidemill import DeltaAppend, Feed, Json, Pipeline, QueryOptions
from tidemill import functions as F
from tidemill.run.spark.engine import session_of
from tidemill.storage.table_ref import TableRef
from tidemill.testing import multiset

INPUTS = ("a", "b", "c")
DELAYS = {"a": "10 minutes", "b": "25 minutes", "c": "5 minutes"}
START = datetime(2026, 1, 1, tzinfo=UTC)
NONE_IS_LATE, SOME_ARE_LATE = timedelta(minutes=4), timedelta(minutes=15)


def _windowed(a, b, c):
    """Events of all inputs in each quarter of an hour: a union."""
    window = F.window("at", "15 minutes")
    return a.unionByName(b).unionByName(c).groupBy(window, "id").count().select("window.start", "id", "count")


def _pairs(a, b, c, how):
    others = b.unionByName(c).select(F.col("id").alias("other"), F.col("at").alias("followed_at"))
    near = F.expr("other = id AND followed_at BETWEEN at AND at + INTERVAL 20 MINUTES")
    return a.join(others, near, how).select("id", "at", "followed_at")


def _joined(a, b, c):
    """Events of `a` with those of `b` and `c` that follow, or without any: an outer join."""
    return _pairs(a, b, c, "left")


def _chained(a, b, c):
    """What follows events of `a` in each quarter of an hour: an aggregation behind a join."""
    pairs = _pairs(a, b, c, "inner").select("id", "followed_at")
    windows = pairs.groupBy(F.window("followed_at", "15 minutes"), "id").count()
    return windows.select("window.start", "id", "count")


FUNCTIONS = {"windowed": _windowed, "joined": _joined, "chained": _chained}


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


def batch(rows: dict[str, list[dict]]) -> dict[str, Counter]:
    """What a computation over all rows at once returns, where no row is late."""
    windows = _by_window((row["at"], row["id"]) for given in rows.values() for row in given)
    joined = []
    for row in rows["a"]:
        others = (other for name in ("b", "c") for other in rows[name] if other["id"] == row["id"])
        near = [
            other["at"] for other in others if timedelta() <= other["at"] - row["at"] <= timedelta(minutes=20)
        ]
        joined += [(row["id"], row["at"], at) for at in near or [None]]
    chained = _by_window((at, name) for name, _, at in joined if at is not None)
    return {"windowed": windows, "joined": multiset(joined), "chained": chained}


def _by_window(events) -> Counter:
    """The number of events in each quarter of an hour."""
    starts = Counter((at - timedelta(seconds=at.timestamp() % 900), name) for at, name in events)
    return multiset((start, name, count) for (start, name), count in starts.items())


def news(chance: random.Random, time: datetime, disorder: timedelta) -> list[dict]:
    """A few events before a time, out of order."""
    return [
        {"id": f"k{chance.randrange(3)}", "at": time - timedelta(seconds=chance.randrange(disorder.seconds))}
        for _ in range(chance.randrange(1, 5))
    ]


def put(table: str, rows: list[dict]) -> None:
    schema = pa.schema({"id": pa.string(), "at": pa.timestamp("us", "UTC")})
    write_deltalake(table, pa.Table.from_pylist(rows, schema), mode="append")


@pytest.mark.parametrize(
    ("runs", "seed", "policy", "disorder"),
    [
        (3, 1, "min", NONE_IS_LATE),
        *(
            pytest.param(30, seed, policy, disorder, marks=pytest.mark.campaign)
            for seed, disorder in ((2, SOME_ARE_LATE), (3, NONE_IS_LATE))
            for policy in ("min", "max")
        ),
    ],
)
def test_each_run_ends_where_a_query_that_never_stops_would_be(
    scratch, tmp_path, *, runs, seed, policy, disorder
):
    chance, time = random.Random(seed), START
    both = streams(policy)
    given: dict[str, list[dict]] = {name: [] for name in INPUTS}
    for name in INPUTS:
        put(scratch.lake.table(both[0].sources[name].upstream).uri, [])
        put(str(scratch.landing / name), [])

    def arrive(name, rows):
        put(scratch.lake.table(both[0].sources[name].upstream).uri, rows)
        put(str(scratch.landing / name), rows)

    def run(peer):
        peer.follow()
        for stream in both:
            scratch.run(stream)
            assert scratch.rows(stream) == scratch.table_rows(peer.tables[stream.name.stream]), stream.name

    with session_of(scratch.engine) as spark:
        peer = AlwaysOn(spark, scratch, tmp_path / "always-on", policy)
        try:
            for _ in range(runs):
                time += timedelta(minutes=chance.randrange(5, 40))
                for name in chance.sample(INPUTS, chance.randrange(1, 4)):
                    rows = news(chance, time, disorder)
                    given[name] += rows
                    arrive(name, rows)
                run(peer)
            for name in INPUTS:
                arrive(name, [{"id": f"end {name}", "at": time + timedelta(days=1)}])
            run(peer)
        finally:
            peer.stop()
    for stream in both:
        assert scratch.rows(stream)
        if disorder == NONE_IS_LATE:
            assert scratch.rows(stream) == batch(given)[stream.name.stream], stream.name

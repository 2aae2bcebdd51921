"""Changes of code between two runs of a stream: the list of the Structured Streaming guide, and more."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from tidemill import DeltaAppend, DeltaMerge, DeltaOverwrite, Feed, Json, Pipeline, QueryOptions
from tidemill.definitions.stream import Stream

FLIGHT = "carrier STRING, origin STRING, n BIGINT, at TIMESTAMP, landed TIMESTAMP"


def flight(carrier: str, origin: str, n: int, minute: int) -> dict[str, Any]:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
    return {"carrier": carrier, "origin": origin, "n": n, "at": at, "landed": at + timedelta(minutes=5)}


FIRST = [flight("x", "y", 1, 0), flight("y", "x", 2, 20), flight("x", "z", 8, 40)]
SECOND = [flight("x", "y", 4, 50), flight("z", "x", 5, 70), flight("z", "q", 6, 900)]


@dataclass(frozen=True, kw_only=True)
class Code:
    """The declaration of a stream: its function, and what goes with it."""

    function: Callable[..., DataFrame]
    mode: str = "append"
    sink: Any = None
    delay: str | None = None
    column: str = "at"
    sources: tuple[str, ...] = ("flights",)
    options: dict[str, Any] = field(default_factory=dict)

    def stream(self) -> Stream:
        """Return the stream `air/result`, which reads tables that the test fills."""
        air = Pipeline("air")
        readings = {}
        for name in self.sources:
            upstream = air.stream(source=Feed(name, Json(FLIGHT)), sink=DeltaAppend(), name=f"{name}_table")(
                lambda events: events
            )
            readings[name] = (
                upstream.with_watermark(self.column, self.delay) if self.delay else upstream.reading()
            )
        arguments = ", ".join(self.sources)
        names: dict[str, Any] = {"function": self.function}
        exec(f"def result({arguments}): return function({arguments})", names)  # noqa: S102 - the names are ours
        sink = self.sink or (DeltaOverwrite() if self.mode == "complete" else DeltaAppend())
        options = {"state_store": "hdfs", "shuffle_partitions": 1} | self.options
        query = QueryOptions(output_mode=self.mode, **options)  # type: ignore[arg-type]
        return air.stream(source=readings, sink=sink, query=query)(names["result"])


@dataclass(frozen=True, kw_only=True)
class Case:
    """A change of code.

    Attributes:
        before: The code of the first run.
        now: The code of the second one.
        kind: The verdict.
        difference: A part of the first difference.
        rows: For a safe change the rows after the second run; None where they are not compared.
        in_gate: Whether it runs with every change of the repository.
    """

    before: Code
    now: Code
    kind: str
    difference: str = ""
    rows: Counter[tuple[Any, ...]] | None = None
    in_gate: bool = False


def complete(function: Callable[..., DataFrame], **more: Any) -> Code:
    return Code(function=function, mode="complete", **more)


def windowed(function: Callable[..., DataFrame], delay: str = "10 minutes", **more: Any) -> Code:
    return Code(function=function, delay=delay, **more)


def count_by(*keys: str) -> Callable[[DataFrame], DataFrame]:
    return lambda flights: flights.groupBy(*map(F.expr, keys)).count()


def aggregate(*values: str) -> Code:
    return complete(lambda flights: flights.groupBy("carrier").agg(*map(F.expr, values)))


def per_window(*window: str) -> Callable[[DataFrame], DataFrame]:
    return lambda flights: flights.groupBy(F.window("at", *window), "carrier").count()


def per_session(gap: str) -> Callable[[DataFrame], DataFrame]:
    return lambda flights: flights.groupBy(F.session_window("at", gap), "carrier").count()


def matched(
    condition: str = "l.carrier = r.carrier AND r.at BETWEEN l.at AND l.at + INTERVAL 1 HOUR",
    how: str = "inner",
    columns: tuple[str, ...] = ("l.carrier", "l.n", "l.at"),
    left: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    above: Callable[[DataFrame], DataFrame] = lambda rows: rows,
) -> Code:
    def function(flights: DataFrame, others: DataFrame) -> DataFrame:
        joined = left(flights).alias("l").join(others.alias("r"), F.expr(condition), how)
        return above(joined.select(*columns))

    return windowed(function, sources=("flights", "others"))


def keep_count(key: Any, rows: Any, state: Any) -> Any:
    import pandas as pd

    (count,) = state.get if state.exists else (0,)
    count += sum(len(part) for part in rows)
    state.update((count,))
    yield pd.DataFrame({"carrier": [key[0]], "count": [count]})


def keep_twice(key: Any, rows: Any, state: Any) -> Any:
    yield from keep_count(key, [part for part in rows for _ in range(2)], state)


def keep_more(key: Any, rows: Any, state: Any) -> Any:
    import pandas as pd

    count = sum(len(part) for part in rows)
    state.update((count, 1))
    yield pd.DataFrame({"carrier": [key[0]], "count": [count]})


def arbitrary(
    function: Any = keep_count,
    state: str = "count BIGINT",
    timeout: str = GroupStateTimeout.NoTimeout,
    key: str = "carrier",
) -> Code:
    return Code(
        function=lambda flights: flights.groupBy(key).applyInPandasWithState(
            function, "carrier STRING, count BIGINT", state, "append", timeout
        )
    )


BY_CARRIER = complete(count_by("carrier"))
DISTINCT = Code(function=lambda flights: flights.dropDuplicates(["carrier"]))
EVERY = Code(function=lambda flights: flights.select("carrier", "origin", "n"))
MERGE = DeltaMerge(keys=["carrier"], sequence_by="count")
HOURLY = windowed(per_window("1 hour"))
SESSIONS = windowed(per_session("5 minutes"))
JOINED = matched()
COUNTED = Counter({("x", 3): 1, ("y", 1): 1, ("z", 2): 1})

CASES = {
    "another group key of the same name and type": Case(
        before=BY_CARRIER,
        now=complete(count_by("origin AS carrier")),
        kind="mixes_state",
        difference="group keys 'carrier' -> 'origin'",
        in_gate=True,
    ),
    "another group key, renamed in a projection below": Case(
        before=BY_CARRIER,
        now=complete(lambda flights: flights.selectExpr("origin AS carrier", "n").groupBy("carrier").count()),
        kind="mixes_state",
        difference="group keys 'carrier' -> 'origin'",
    ),
    "a group key of another type": Case(
        before=BY_CARRIER,
        now=complete(
            lambda flights: flights.groupBy("n").count().selectExpr("CAST(n AS STRING) AS carrier", "count")
        ),
        kind="refused_by_spark",
    ),
    "one more group key": Case(
        before=BY_CARRIER,
        now=complete(count_by("carrier", "origin")),
        kind="refused_by_spark",
    ),
    "another aggregate of the same type": Case(
        before=aggregate("sum(n) AS v"),
        now=aggregate("max(n) AS v"),
        kind="mixes_state",
        difference="aggregates 'sum(n)' -> 'max(n)'",
    ),
    "an expression around an aggregate": Case(
        before=aggregate("sum(n) AS v"),
        now=aggregate("-sum(n) * 2 AS v"),
        kind="safe",
        rows=Counter({("x", -26): 1, ("y", -4): 1, ("z", -22): 1}),
    ),
    "an aggregate of another type": Case(
        before=aggregate("sum(n) AS v"),
        now=aggregate("CAST(avg(n) AS BIGINT) AS v"),
        kind="refused_by_spark",
    ),
    "one more aggregate": Case(
        before=aggregate("sum(n) AS v"),
        now=aggregate("sum(n) AS v", "max(n) AS w"),
        kind="refused_by_spark",
    ),
    "aggregates in another order": Case(
        before=aggregate("sum(n) AS v", "max(n) AS w"),
        now=aggregate("max(n) AS w", "sum(n) AS v"),
        kind="mixes_state",
    ),
    "a filter below an aggregation": Case(
        before=BY_CARRIER,
        now=complete(lambda flights: flights.where("n > 3").groupBy("carrier").count()),
        kind="mixes_state",
        difference="filters 'none' -> '(n > cast(3 as bigint))'",
        in_gate=True,
    ),
    "rows multiplied below an aggregation": Case(
        before=BY_CARRIER,
        now=complete(
            lambda flights: (
                flights.withColumn("i", F.explode(F.sequence(F.lit(1), F.lit(2)))).groupBy("carrier").count()
            )
        ),
        kind="mixes_state",
    ),
    "a filter above an aggregation": Case(
        before=BY_CARRIER,
        now=complete(lambda flights: flights.groupBy("carrier").count().where("count > 1")),
        kind="safe",
        rows=Counter({("x", 3): 1, ("z", 2): 1}),
    ),
    "a projection above an aggregation": Case(
        before=BY_CARRIER,
        now=complete(
            lambda flights: flights.groupBy("carrier").count().withColumn("count", F.col("count") * 10)
        ),
        kind="safe",
        rows=Counter({("x", 30): 1, ("y", 10): 1, ("z", 20): 1}),
    ),
    "a column that the aggregation does not use": Case(
        before=BY_CARRIER,
        now=complete(lambda flights: flights.withColumn("n", F.lit(1)).groupBy("carrier").count()),
        kind="safe",
        rows=COUNTED,
    ),
    "the name of an output": Case(
        before=complete(lambda flights: flights.groupBy("carrier").agg(F.count("*").alias("count"))),
        now=BY_CARRIER,
        kind="nothing",
        rows=COUNTED,
    ),
    "no change": Case(before=BY_CARRIER, now=BY_CARRIER, kind="nothing", rows=COUNTED),
    "a longer window": Case(
        before=HOURLY,
        now=windowed(per_window("3 hours")),
        kind="mixes_state",
        difference="window 'at, 1 hour' -> 'at, 3 hours'",
        in_gate=True,
    ),
    "a window that slides": Case(
        before=HOURLY,
        now=windowed(per_window("1 hour", "30 minutes")),
        kind="refused_by_spark",
        difference="window 'at, 1 hour' -> 'at, 1 hour, every 30 minutes'",
    ),
    "a window that no longer slides": Case(
        before=windowed(per_window("1 hour", "30 minutes")),
        now=HOURLY,
        kind="mixes_state",
    ),
    "a window that slides more often": Case(
        before=windowed(per_window("1 hour", "30 minutes")),
        now=windowed(per_window("1 hour", "20 minutes")),
        kind="mixes_state",
        difference="'at, 1 hour, every 30 minutes' -> 'at, 1 hour, every 20 minutes'",
    ),
    "a window with an offset": Case(
        before=HOURLY,
        now=windowed(per_window("1 hour", "1 hour", "15 minutes")),
        kind="mixes_state",
        difference="'at, 1 hour, offset 15 minutes'",
    ),
    "the delay of a watermark": Case(
        before=HOURLY,
        now=windowed(per_window("1 hour"), "2 hours"),
        kind="mixes_state",
        difference="watermark 'at: 10 minutes' -> 'at: 2 hours'",
        in_gate=True,
    ),
    "the column of a watermark": Case(
        before=windowed(lambda flights: flights.dropDuplicates(["carrier"])),
        now=windowed(lambda flights: flights.dropDuplicates(["carrier"]), column="landed"),
        kind="mixes_state",
        difference="watermark 'at: 10 minutes' -> 'landed: 10 minutes'",
    ),
    "the gap of a session window": Case(
        before=SESSIONS,
        now=windowed(per_session("10 minutes")),
        kind="mixes_state",
        difference="session window 'at, 5 minutes' -> 'at, 10 minutes'",
    ),
    "a session window instead of a window": Case(
        before=windowed(lambda flights: per_window("1 hour")(flights).drop("window")),
        now=windowed(lambda flights: per_session("1 hour")(flights).drop("session_window")),
        kind="refused_by_spark",
    ),
    "another key of a deduplication": Case(
        before=DISTINCT,
        now=Code(function=lambda flights: flights.dropDuplicates(["origin"])),
        kind="mixes_state",
        difference="keys 'carrier' -> 'origin'",
    ),
    "one more key of a deduplication": Case(
        before=DISTINCT,
        now=Code(function=lambda flights: flights.dropDuplicates(["carrier", "origin"])),
        kind="refused_by_spark",
    ),
    "a deduplication within the watermark": Case(
        before=windowed(lambda flights: flights.dropDuplicates(["carrier"])),
        now=windowed(lambda flights: flights.dropDuplicatesWithinWatermark(["carrier"])),
        kind="refused_by_spark",
    ),
    "an aggregation instead of a deduplication": Case(
        before=windowed(lambda flights: flights.dropDuplicates(["carrier"]).select("carrier")),
        now=windowed(
            lambda flights: flights.groupBy(F.window("at", "1 hour"), "carrier").count().select("carrier")
        ),
        kind="refused_by_spark",
    ),
    "a stateful operator more": Case(
        before=windowed(per_window("1 hour")),
        now=windowed(lambda flights: per_window("1 hour")(flights.dropDuplicates(["carrier", "at"]))),
        kind="refused_by_spark",
        difference="operators 'aggregate' -> 'aggregate, deduplicate'",
    ),
    "a stateful operator less": Case(
        before=windowed(lambda flights: per_window("1 hour")(flights.dropDuplicates(["carrier", "at"]))),
        now=windowed(per_window("1 hour")),
        kind="refused_by_spark",
    ),
    "the first stateful operator": Case(
        before=Code(function=lambda flights: flights),
        now=DISTINCT,
        kind="refused_by_spark",
        difference="operators 'none' -> 'deduplicate'",
    ),
    "no stateful operator any more": Case(
        before=DISTINCT,
        now=Code(function=lambda flights: flights),
        kind="refused_by_spark",
    ),
    "a filter of a stateless stream": Case(
        before=EVERY,
        now=Code(function=lambda flights: EVERY.function(flights).where("n > 4")),
        kind="safe",
        rows=Counter(
            {("x", "y", 1): 1, ("y", "x", 2): 1, ("x", "z", 8): 1, ("z", "x", 5): 1, ("z", "q", 6): 1}
        ),
    ),
    "the outer type of a join": Case(before=JOINED, now=matched(how="leftOuter"), kind="refused_by_spark"),
    "the bound of a join": Case(
        before=JOINED,
        now=matched("l.carrier = r.carrier AND r.at BETWEEN l.at AND l.at + INTERVAL 2 HOURS"),
        kind="mixes_state",
    ),
    "another column of a join": Case(
        before=JOINED,
        now=matched("l.carrier = r.origin AND r.at BETWEEN l.at AND l.at + INTERVAL 1 HOUR"),
        kind="mixes_state",
    ),
    "one more column of a join": Case(
        before=JOINED,
        now=matched(
            "l.carrier = r.carrier AND l.origin = r.origin AND r.at BETWEEN l.at AND l.at + INTERVAL 1 HOUR"
        ),
        kind="refused_by_spark",
    ),
    "one more column of the output of a join": Case(
        before=JOINED,
        now=matched(columns=("l.carrier", "l.n", "l.at", "r.origin")),
        kind="refused_by_spark",
    ),
    "a column of a join that means something else": Case(
        before=JOINED,
        now=matched(left=lambda rows: rows.withColumn("n", F.col("n") * 2)),
        kind="refused_by_spark",
        difference="left columns",
    ),
    "a filter below a join": Case(
        before=JOINED,
        now=matched(left=lambda rows: rows.where("n > 1")),
        kind="mixes_state",
        difference="filters",
    ),
    "no filter below a join": Case(
        before=matched(left=lambda rows: rows.where("n > 1")),
        now=JOINED,
        kind="refused_by_spark",
        difference="filters",
    ),
    "no outer type of a join": Case(before=matched(how="leftOuter"), now=JOINED, kind="mixes_state"),
    "a filter above a join": Case(
        before=JOINED, now=matched(above=lambda rows: rows.where("n > 3")), kind="safe"
    ),
    "the function of a user": Case(before=arbitrary(), now=arbitrary(keep_twice), kind="safe"),
    "the state of a user": Case(
        before=arbitrary(),
        now=arbitrary(keep_more, "count BIGINT, more INT"),
        kind="refused_by_spark",
    ),
    "the timeout of a user": Case(
        before=arbitrary(),
        now=arbitrary(timeout=GroupStateTimeout.ProcessingTimeTimeout),
        kind="refused_by_spark",
    ),
    "the key of a user": Case(before=arbitrary(), now=arbitrary(key="origin"), kind="mixes_state"),
    "a limit": Case(
        before=Code(function=lambda flights: flights.limit(2)),
        now=Code(function=lambda flights: flights.limit(4)),
        kind="mixes_state",
    ),
    "the state store": Case(
        before=BY_CARRIER,
        now=complete(count_by("carrier"), options={"state_store": "rocksdb"}),
        kind="nothing",
        rows=COUNTED,
    ),
    "the output mode": Case(
        before=windowed(per_window("1 hour"), sink=MERGE),
        now=windowed(per_window("1 hour"), sink=MERGE, mode="update"),
        kind="refused",
    ),
    "a source more": Case(
        before=BY_CARRIER,
        now=complete(
            lambda flights, others: flights.unionByName(others).groupBy("carrier").count(),
            sources=("flights", "others"),
        ),
        kind="safe",
        rows=Counter({("x", 6): 1, ("y", 2): 1, ("z", 4): 1}),
    ),
    "a source less": Case(
        before=complete(
            lambda flights, others: flights.unionByName(others).groupBy("carrier").count(),
            sources=("flights", "others"),
        ),
        now=BY_CARRIER,
        kind="safe",
    ),
}

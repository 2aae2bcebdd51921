"""What Spark refuses to stream, one case or more per row of run/spark/refusals.py, and what it allows."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tests.plans.code_cases import FIRST, Code, complete, count_by, keep_count, matched, windowed
from tidemill import DeltaMerge
from tidemill.run.spark.engine import Engine
from tidemill.storage.lake import Lake
from tidemill.testing import Scratch

UNSUPPORTED, ACTION = "operation-unsupported", "action-in-function"
WATERMARK, MODE = "watermark-missing", "output-mode-unsuitable"
BOTH = ("flights", "others")


@dataclass(frozen=True)
class Refused:
    """A stream that Spark refuses.

    Attributes:
        code: Its declaration.
        error: The code of the error.
        operation: What the message calls the operation.
        way: A part of the way around.
        call: The call in the function that is refused; empty where the query is.
    """

    code: Code
    error: str
    operation: str
    way: str
    call: str = ""


def update(function: Callable[..., DataFrame], key: str = "carrier", **more: Any) -> Code:
    return Code(function=function, mode="update", sink=DeltaMerge(keys=[key]), **more)


def append(function: Callable[..., DataFrame], **more: Any) -> Code:
    return Code(function=function, **more)


def two(function: Callable[..., DataFrame], **more: Any) -> Code:
    return append(function, sources=BOTH, **more)


def with_flights(folder: Path, engine: Engine) -> Scratch:
    """Return a lake with the tables that the cases read."""
    scratch = Scratch(lake=Lake.at(folder / "lake"), landing=folder / "landing", engine=engine)
    reader = two(lambda flights, others: flights.unionAll(others)).stream()
    for name in BOTH:
        scratch.arrive(reader, name, FIRST)
    return scratch


def snapshot(flights: DataFrame) -> DataFrame:
    return flights.sparkSession.createDataFrame([("x",)], "carrier STRING")


def joined(how: str, *, stream: str = "left") -> Code:
    def function(flights: DataFrame) -> DataFrame:
        sides = [flights.select("carrier"), snapshot(flights)]
        left, right = sides if stream == "left" else sides[::-1]
        return left.join(right, "carrier", how)

    return append(function)


def unbounded(how: str) -> Code:
    columns = ("l.carrier", "l.n") + (() if how == "left_semi" else ("r.landed",))
    return append(matched(how=how, columns=columns).function, sources=BOTH)


def acting(action: Callable[[DataFrame], Any]) -> Code:
    def function(flights: DataFrame) -> DataFrame:
        action(flights)
        return flights

    return append(function)


def subquery(condition: str) -> Code:
    query = f"FROM {{flights}} AS l |> WHERE {condition}"
    return two(
        lambda flights, others: flights.sparkSession.sql(query, flights=flights, others=others),
        delay="1 hour",
    )


def ranked(function: Callable[[], Any]) -> Code:
    def with_rank(flights: DataFrame) -> DataFrame:
        over = Window.partitionBy("carrier").orderBy("at")
        return flights.withColumn("rank", function().over(over))

    return append(with_rank)


def with_state(rows: DataFrame, mode: str = "append", timeout: str = "NoTimeout") -> DataFrame:
    schema = "carrier STRING, origin STRING, n BIGINT, at TIMESTAMP, landed TIMESTAMP"
    return rows.groupBy("carrier").applyInPandasWithState(keep_count, schema, "n BIGINT", mode, timeout)


def windows(flights: DataFrame) -> DataFrame:
    return flights.groupBy(F.window("at", "1 hour"), "carrier").count()


def sessions(flights: DataFrame) -> DataFrame:
    return flights.groupBy(F.session_window("at", "10 minutes"), "carrier").count()


def pivoted(*values: list[str]) -> Callable[[DataFrame], DataFrame]:
    return lambda flights: flights.groupBy("carrier").pivot("origin", *values).count()


NAMED = {"left_outer": "left outer", "right_outer": "right outer", "full_outer": "full outer"}
NAMED |= {"left_semi": "left semi"}
SORT = "a sort, as in orderBy, sortWithinPartitions and randomSplit"
DISTINCT = "an aggregation of distinct values"
CHAIN = "a stateful operation on the result of another one"
NO_WATERMARK = "an aggregation without a watermark in append mode"
ANTI = "a left anti join with a stream on its right"
EXCEPT = "subtract, exceptAll or EXCEPT with a stream on its right"

REFUSED = {
    "a limit in update mode": Refused(
        update(lambda flights: count_by("carrier")(flights).limit(3)),
        UNSUPPORTED,
        "a limit in update mode",
        "batch asset downstream",
    ),
    "an offset": Refused(
        append(lambda flights: flights.offset(3)), UNSUPPORTED, "an offset", "batch asset downstream"
    ),
    "a top-N": Refused(
        append(lambda flights: flights.orderBy("n").limit(3)), UNSUPPORTED, SORT, "batch asset downstream"
    ),
    "a sort in update mode": Refused(
        update(lambda flights: count_by("carrier")(flights).orderBy("count")),
        UNSUPPORTED,
        SORT,
        "batch asset downstream",
    ),
    "randomSplit": Refused(
        append(lambda flights: flights.randomSplit([0.5, 0.5], 1)[0]), UNSUPPORTED, SORT, "batch asset"
    ),
    "a distinct count": Refused(
        update(lambda flights: flights.groupBy("carrier").agg(F.countDistinct("origin"))),
        UNSUPPORTED,
        DISTINCT,
        "F.approx_count_distinct",
    ),
    "a sum of distinct values": Refused(
        complete(lambda flights: flights.groupBy("carrier").agg(F.sum_distinct("n"))),
        UNSUPPORTED,
        DISTINCT,
        "dropDuplicates",
    ),
    "a pivot without values": Refused(
        update(pivoted()), UNSUPPORTED, "a pivot without its values", "F.count(F.when("
    ),
    "a pivot in update mode": Refused(
        update(pivoted(["x", "y"])), UNSUPPORTED, "a pivot in update or complete mode", "F.count(F.when("
    ),
    "two aggregations in update mode": Refused(
        update(lambda flights: count_by("carrier")(windows(flights)), delay="1 hour"),
        UNSUPPORTED,
        CHAIN,
        "a stream of its own",
    ),
    "two aggregations in complete mode": Refused(
        complete(lambda flights: count_by("carrier")(windows(flights)), delay="1 hour"),
        UNSUPPORTED,
        CHAIN,
        "append mode with a watermark",
    ),
    "two functions with state": Refused(
        append(lambda flights: with_state(with_state(flights))), UNSUPPORTED, CHAIN, "a stream of its own"
    ),
    "an aggregation of a function with state": Refused(
        update(lambda flights: count_by("carrier")(with_state(flights, "update"))),
        UNSUPPORTED,
        CHAIN,
        "a stream of its own",
    ),
    "row_number": Refused(
        ranked(F.row_number), UNSUPPORTED, "the window function ROW_NUMBER", "DeltaMerge(keys=, sequence_by=)"
    ),
    "lag": Refused(
        ranked(lambda: F.lag("n")), UNSUPPORTED, "the window function LAG", "applyInPandasWithState"
    ),
    **{
        f"{name} without a watermark": Refused(
            unbounded(how),
            WATERMARK,
            f"a {name} join of two streams without a watermark and a time range",
            "with_watermark(column, delay) on both sources",
        )
        for how, name in NAMED.items()
    },
    "a left outer join in update mode": Refused(
        update(matched(how="left_outer").function, sources=BOTH, delay="1 hour"),
        MODE,
        "a left outer join of two streams in update mode",
        "append mode",
    ),
    "a left anti join of streams": Refused(
        windowed(matched(how="left_anti").function, sources=BOTH), UNSUPPORTED, ANTI, "left outer join"
    ),
    "a left anti join of a snapshot": Refused(
        joined("left_anti", stream="right"), UNSUPPORTED, ANTI, "on the left"
    ),
    **{
        f"{how}, stream on the {side}": Refused(
            joined(how, stream=side),
            UNSUPPORTED,
            f"a {NAMED[how]} join of a stream on its {side} and a snapshot",
            "keep the rows of the stream",
        )
        for how, side in (
            ("left_outer", "right"),
            ("full_outer", "right"),
            ("full_outer", "left"),
            ("right_outer", "left"),
            ("left_semi", "right"),
        )
    },
    "intersect": Refused(
        two(lambda flights, others: flights.intersect(others)),
        UNSUPPORTED,
        "an intersection",
        "left semi join",
    ),
    "subtract": Refused(
        two(lambda flights, others: flights.subtract(others)), UNSUPPORTED, EXCEPT, "left outer join"
    ),
    "exceptAll": Refused(
        two(lambda flights, others: flights.exceptAll(others)), UNSUPPORTED, EXCEPT, "left outer join"
    ),
    "sample": Refused(
        append(lambda flights: flights.sample(0.5, 3)), UNSUPPORTED, "a sample", "F.xxhash64('id')"
    ),
    "monotonically_increasing_id": Refused(
        append(lambda flights: flights.withColumn("id", F.monotonically_increasing_id())),
        UNSUPPORTED,
        "the expression monotonically_increasing_id()",
        "_origin",
    ),
    "a union with a snapshot": Refused(
        append(lambda flights: flights.select("carrier").union(snapshot(flights))),
        UNSUPPORTED,
        "a union of a stream and a snapshot",
        "without .static()",
    ),
    "IN": Refused(
        subquery("carrier IN (SELECT carrier FROM {others})"),
        UNSUPPORTED,
        "a subquery that reads a stream",
        ".static()",
        call="sql()",
    ),
    "EXISTS": Refused(
        subquery("EXISTS (SELECT * FROM {others} AS r WHERE l.carrier = r.carrier)"),
        UNSUPPORTED,
        "a subquery that reads a stream",
        "left semi join",
        call="sql()",
    ),
    "a watermark on a string": Refused(
        windowed(windows, column="carrier"),
        UNSUPPORTED,
        "a watermark on the column carrier, which is of type STRING",
        "TIMESTAMP",
    ),
    "dropDuplicatesWithinWatermark": Refused(
        append(lambda flights: flights.dropDuplicatesWithinWatermark(["carrier"])),
        WATERMARK,
        "dropDuplicatesWithinWatermark without a watermark",
        "or use dropDuplicates",
    ),
    "an event-time timeout": Refused(
        append(lambda flights: with_state(flights, timeout="EventTimeTimeout")),
        WATERMARK,
        "an event-time timeout without a watermark",
        "with_watermark(column, delay)",
    ),
    "an aggregation in append mode": Refused(
        append(count_by("carrier")), WATERMARK, NO_WATERMARK, "QueryOptions(output_mode='update')"
    ),
    "an aggregation over its window": Refused(
        windowed(lambda flights: count_by("carrier")(windows(flights))), WATERMARK, NO_WATERMARK, "F.window"
    ),
    "complete mode without an aggregation": Refused(
        complete(lambda flights: flights), MODE, "complete mode without an aggregation", "append mode"
    ),
    "a session window in update mode": Refused(
        update(sessions, delay="1 hour"),
        MODE,
        "a session window in update mode",
        "append mode with a watermark",
    ),
    "a function with state of another mode": Refused(
        append(lambda flights: with_state(flights, "update")),
        MODE,
        "applyInPandasWithState with the output mode update in a stream in append mode",
        "outputMode",
    ),
    **{
        action: Refused(
            acting(call), ACTION, "an action inside the function", "BatchSink(function)", call=f"{action}()"
        )
        for action, call in {
            "collect": lambda flights: flights.collect(),
            "count": lambda flights: flights.count(),
            "show": lambda flights: flights.show(),
            "toPandas": lambda flights: flights.toPandas(),
            "isEmpty": lambda flights: flights.isEmpty(),
            "cache": lambda flights: flights.cache(),
        }.items()
    },
    "write": Refused(
        acting(lambda flights: flights.write.format("noop").mode("append").save()),
        ACTION,
        "a batch write inside the function",
        "sink=",
    ),
    "a result of snapshots": Refused(
        append(snapshot), UNSUPPORTED, "a result that reads no stream", "rows of a streaming source"
    ),
}

ALLOWED = {
    "a limit in append mode": append(lambda flights: flights.limit(3)),
    "a top-N in complete mode": complete(
        lambda flights: count_by("carrier")(flights).orderBy(F.desc("count")).limit(2)
    ),
    "distinct": append(lambda flights: flights.select("carrier").distinct()),
    "a pivot in append mode": windowed(
        lambda flights: flights.groupBy(F.window("at", "1 hour")).pivot("origin", ["x", "y"]).count()
    ),
    "a conditional aggregate": update(
        lambda flights: flights.groupBy("carrier").agg(F.count(F.when(F.col("origin") == "x", 1)).alias("x"))
    ),
    "an approximate distinct count": update(
        lambda flights: flights.groupBy("carrier").agg(F.approx_count_distinct("origin").alias("origins"))
    ),
    "subtract of a snapshot": append(lambda flights: flights.select("carrier").subtract(snapshot(flights))),
    "a left anti join with a snapshot": joined("left_anti"),
    "a left semi join with a snapshot": joined("left_semi"),
    "a part by a hash": append(lambda flights: flights.where(F.pmod(F.xxhash64("n"), F.lit(100)) < 10)),
    "sampleBy": append(lambda flights: flights.sampleBy("carrier", {"x": 0.5}, 3)),
    "rand and uuid": append(
        lambda flights: flights.withColumns({"random": F.rand(), "id": F.expr("uuid()")})
    ),
    "an inner join in update mode": update(matched().function, sources=BOTH),
    "what a left outer join leaves without a match": windowed(
        matched(how="left_outer", columns=("l.carrier", "r.landed")).function, sources=BOTH
    ),
    "two aggregations in append mode": windowed(
        lambda flights: windows(flights).groupBy(F.window(F.window_time("window"), "2 hours")).count()
    ),
    "a session window in append mode": windowed(sessions),
}

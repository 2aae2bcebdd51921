"""Streams whose runs are killed, and that run: `python -m tests.run.fault_streams LAKE LANDING STREAM ...`."""

import os
import sys
import time
from pathlib import Path

from pyspark.sql import functions as F

from tests.support.killed import run_side_by_side, scratch_at
from tests.support.recorded import recording
from tidemill import DeltaAppend, DeltaMerge, DeltaOverwrite, Feed, Json, Pipeline, QueryOptions

ORDER = "order_id STRING, customer STRING, amount BIGINT, at TIMESTAMP"
NAME = "customer STRING, name STRING"
OWNER = "customer STRING, owner STRING, seq BIGINT, at TIMESTAMP"
PAYMENT = "order_id STRING, paid_at TIMESTAMP"
DELAY = "10 minutes"


def _paused(column):
    """The column as it is, or a task that touches a file and waits to be killed."""
    marker = os.environ.get("TEST_PAUSE_TASK")
    if not marker:
        return column

    def pause(value):
        Path(marker).touch()
        time.sleep(600)
        return value

    return F.udf(pause, "string")(column)


def _ingest(pipeline: Pipeline, *, changed: bool) -> None:
    """What reads feeds."""

    # Alike, for kills of their own; the last of them writes two tables.
    for name in ("orders", "refunds", "returns"):

        @pipeline.stream(
            name=name,
            source=Feed(name, format=Json(ORDER), rules={"amount_positive": "amount > 0"}),
            sink=[DeltaAppend(), DeltaAppend(name="archive")] if name == "returns" else DeltaAppend(),
        )
        def ingest(events):
            return events.withColumn("note", F.lit("new")) if changed else events

    # A rule that may answer differently: the quarantine is written first.
    known = "order_id != 'bad' AND rand() >= 0"

    @pipeline.stream(
        source=Feed("payments", format=Json(PAYMENT), rules={"known": known}),
        sink=DeltaAppend(),
    )
    def payments(events):
        return events

    @pipeline.stream(
        source=Feed("owners", format=Json(OWNER)),
        sink=DeltaMerge(keys=["customer"], sequence_by="seq", scd_type=2, valid_by="at"),
    )
    def owners(events):
        return events

    # What a function is given is recorded in a file: alone, and next to a table.
    calls = Path(os.environ.get("TEST_CALLS", "."))
    for name, tables in {"sent": (), "noted": (DeltaAppend(),)}.items():

        @pipeline.stream(
            name=name,
            source=Feed(name, format=Json(ORDER)),
            sink=[recording(calls / name, "order_id"), *tables],
        )
        def given(events):
            return events

    @pipeline.stream(source=Feed("names", format=Json(NAME)), sink=DeltaAppend())
    def names(events):
        return events.withColumn("name", _paused(F.col("name")))


def _counted(orders):
    """How many orders there are in each window of five minutes."""
    windows = orders.groupBy(F.window("at", "5 minutes").alias("w")).agg(F.count("*").alias("n"))
    return windows.select("w.start", "n")


def shop(*, changed: bool = False) -> Pipeline:
    """The streams; `changed` is the code after an edit between the kill and the next run."""
    pipeline = Pipeline("shop")

    _ingest(pipeline, changed=changed)
    orders, payments, names = pipeline["orders"], pipeline["payments"], pipeline["names"]

    @pipeline.stream(source=orders, sink=DeltaAppend())
    def copied(orders):
        return orders.select("order_id", "amount")

    @pipeline.stream(source={"orders": orders, "names": names.static()}, sink=DeltaAppend())
    def named(orders, names):
        return orders.join(names, "customer", "left").select("order_id", "name")

    # After the edit two targets instead of one: foreachBatch instead of Spark's own sink.
    @pipeline.stream(
        source=orders.with_watermark("at", DELAY),
        sink=[DeltaAppend(), DeltaAppend(name="archive")] if changed else DeltaAppend(),
    )
    def windows(orders):
        return _counted(orders)

    @pipeline.stream(source=orders.with_watermark("at", DELAY), sink=DeltaAppend())
    def counts(orders):
        return _counted(orders)

    @pipeline.stream(source=orders.with_watermark("at", DELAY), sink=DeltaAppend())
    def visits(orders):
        sessions = orders.groupBy("customer", F.session_window("at", "5 minutes").alias("w"))
        return sessions.agg(F.count("*").alias("n")).select("customer", "w.start", "n")

    @pipeline.stream(
        source={
            "orders": orders.with_watermark("at", DELAY),
            "payments": payments.with_watermark("paid_at", DELAY),
        },
        sink=DeltaAppend(),
    )
    def paid(orders, payments):
        within = F.expr("o.order_id = p.order_id AND paid_at >= at AND paid_at <= at + INTERVAL 5 MINUTES")
        joined = orders.alias("o").join(payments.alias("p"), within, "left")
        return joined.select("o.order_id", "paid_at")

    @pipeline.stream(
        source=orders,
        sink=DeltaMerge(keys=["customer"], sequence_by="n"),
        query=QueryOptions(output_mode="update"),
    )
    def totals(orders):
        return orders.groupBy("customer").agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))

    # The changes of the totals, added up: their sum is the totals again.
    @pipeline.stream(
        source=totals.changes(),
        sink=DeltaMerge(keys=["customer"]),
        query=QueryOptions(output_mode="update"),
    )
    def followed(changes):
        is_added = F.col("_change_type").isin("insert", "update_postimage")
        sign = F.when(is_added, 1).otherwise(-1)
        return changes.groupBy("customer").agg(
            F.sum(sign * F.col("n")).alias("n"), F.sum(sign * F.col("amount")).alias("amount")
        )

    @pipeline.stream(
        source=orders, sink=DeltaOverwrite(), query=QueryOptions(output_mode="complete"), name="best"
    )
    def best(orders):
        amounts = orders.groupBy("customer").agg(F.sum("amount").alias("amount"))
        return amounts.orderBy(F.desc("amount")).limit(1)

    return pipeline


PIPELINE = shop()


def main() -> None:
    """One run of some streams, all side by side, in a process and a JVM of their own."""
    lake, landing, *names = sys.argv[1:]
    run_side_by_side(scratch_at(lake, landing, cores=3), [shop()[name] for name in names])


if __name__ == "__main__":
    main()

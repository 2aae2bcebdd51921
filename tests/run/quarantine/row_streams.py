"""Streams whose expectations quarantine rows: `python -m tests.run.quarantine.row_streams LAKE LANDING MOST`."""

import sys
from datetime import UTC, datetime, timedelta
from itertools import count

from pyspark.sql import functions as F

from tests.support.killed import run_side_by_side, scratch_at
from tidemill import DeltaAppend, DeltaMerge, Expect, Feed, Json, Pipeline, QueryOptions

ORDER = "id STRING, customer STRING, amount BIGINT, parts INT, at TIMESTAMP"
DAY = datetime(2026, 1, 1, tzinfo=UTC)


def rules(most: int, *, on: str = "quarantine") -> list[Expect]:
    """Rules of which several send a row to quarantine; two are NULL or raise an error for some rows."""
    return [
        Expect("small", f"amount <= {most}", on_violation=on),
        Expect("shared", "amount / parts < 50", on_violation=on),
        Expect("real", "customer <> 'test'", on_violation="drop"),
        Expect("even", "amount % 2 = 0"),
    ]


def shop(most: int, *, on: str = "quarantine") -> Pipeline:
    """The streams, with the largest amount that a rule accepts.

    Args:
        on: What happens to a row that violates the rules.
    """
    pipeline = Pipeline("shop")
    expect = rules(most, on=on)

    @pipeline.stream(source=Feed("orders", format=Json(ORDER)), sink=DeltaAppend())
    def orders(events):
        return events

    def with_day(orders):
        return orders.withColumn("day", F.to_date("at"))

    # One native append, two tables, and a merge by key; the last one reads a feed with a rule of its own.
    several = [DeltaAppend(name="archive"), DeltaAppend()]
    merge = DeltaMerge(keys=["id"], sequence_by="at")
    pipeline.stream(source=orders, sink=DeltaAppend(), expect=expect, name="plain", backfill_by="day")(
        with_day
    )
    pipeline.stream(source=orders, sink=several, expect=expect, name="copied")(with_day)
    pipeline.stream(source=orders, sink=merge, expect=expect, name="current", backfill_by="day")(with_day)
    pipeline.stream(
        source=Feed("events", format=Json(ORDER), rules={"has_id": "id <> ''"}),
        sink=DeltaAppend(),
        expect=expect,
        name="ingested",
        backfill_by="day",
    )(with_day)

    @pipeline.stream(
        source=orders,
        sink=DeltaMerge(keys=["customer"]),
        query=QueryOptions(output_mode="update"),
        expect=[Expect("small", f"amount <= {most}", on_violation=on)],
    )
    def totals(orders):
        return orders.groupBy("customer").agg(F.sum("amount").alias("amount"))

    return pipeline


_numbers = count()


def order(amount, customer="a", parts=1, *, day=0):
    """An order with an id of its own."""
    number = next(_numbers)
    at = DAY + timedelta(days=day, microseconds=number)
    made = {"id": f"o{number}", "customer": customer, "amount": amount, "parts": parts, "at": at.isoformat()}
    return {name: value for name, value in made.items() if value is not None}


def main() -> None:
    """Run the streams that are named, side by side, in a process and a JVM of their own."""
    lake, landing, most, *names = sys.argv[1:]
    made = shop(int(most))
    run_side_by_side(scratch_at(lake, landing, cores=3), [made[name] for name in names])


if __name__ == "__main__":
    main()

"""Compare a feed in Tidemill with the same ingest by hand, from files and from a topic.

By hand, files are read with Spark's JSON source and messages with `from_json`, into a Delta table with Spark's own
sink: nothing is separated, counted or recorded. Tidemill parses the records, judges them by three rules, adds their
origin, and moves the refused ones to quarantine.

A round is one batch. The script prints a table of docs/performance.md: medians, the ratio of the times and that of the
CPU seconds of the JVMs (which other work on the machine changes less), and the peak memory of each JVM.
"""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from bids import BID, bids, broker_of, into_files, into_topic, parsed
from side_by_side import Work, compare, median, peak, print_header, print_row, ratios, work

from tidemill import DeltaAppend, Feed, Json, Pipeline
from tidemill.target.target import KafkaCluster, TopicBinding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RULES = {
    "auction_known": "auction IS NOT NULL",
    "price_positive": "price > 0",
    "time_known": "date_time IS NOT NULL",
}
FEED = "bids"
PARTS = 8


def main() -> None:
    """Measure and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--records", type=int, default=2_000_000)
    arguments.add_argument(
        "--refused", type=float, nargs="+", default=[0.0, 0.03], help="shares, such as 0.03"
    )
    arguments.add_argument("--sources", nargs="+", choices=["files", "topic"], default=["files", "topic"])
    options = arguments.parse_args()
    print_header(
        f"{options.records:,} records", "by hand", "Tidemill", "ratio", "of CPU", "memory by hand", "Tidemill"
    )
    for refused in options.refused:
        pool = [list(bids(options.records // PARTS, refused=refused, seed=seed)) for seed in range(PARTS)]
        for source in options.sources:
            hand, ours = measured(source, pool, options.rounds)
            print_row(
                f"{source}, {refused:.0%} refused",
                *(median(hand), median(ours), ratios(ours, hand), ratios(ours, hand, "cpu")),
                *(peak(hand), peak(ours)),
            )


def measured(source: str, pool: list[list[str]], rounds: int) -> tuple[list, list]:
    """Return what the two took."""
    with broker_of(source, FEED) as bootstrap:

        def arrive(root, number) -> None:  # noqa: ANN001
            if bootstrap:
                into_topic(pool, bootstrap, FEED)
            else:
                into_files(pool, root / "landing" / FEED, f"{number:03}")

        runs = compare(WAYS, arrive, rounds=rounds, case={"bootstrap": bootstrap})
    return runs["by hand"], runs["Tidemill"]


def by_hand(given: Work) -> Callable[[], object]:
    """Return a function that ingests what has arrived with plain PySpark."""
    spark, bootstrap = given.spark_as_ours(), given.case["bootstrap"]

    def rows() -> "DataFrame":
        reader = spark.readStream.name("source")
        if not bootstrap:
            return reader.schema(BID).json(str(given.root / "landing" / FEED))
        reader = reader.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        return parsed(reader.option("subscribe", FEED).option("startingOffsets", "earliest").load())

    def run() -> None:
        given.finish(rows().writeStream.format("delta").option("path", str(given.own / "table")))

    return run


def tidemill(given: Work) -> Callable[[], object]:
    """Return a function that ingests what has arrived with Tidemill."""
    scratch = given.scratch()
    if given.case["bootstrap"]:
        scratch.bindings[FEED] = TopicBinding(KafkaCluster(bootstrap=given.case["bootstrap"]), FEED)
    feed = Feed(FEED, format=Json(BID), rules=RULES, max_records_per_batch=None)
    stream = Pipeline("bench").stream(source=feed, sink=DeltaAppend(), name="bids")(lambda rows: rows)
    return lambda: scratch.run(stream)


WAYS = {"by hand": by_hand, "Tidemill": tidemill}

if __name__ == "__main__":
    work(WAYS) or main()

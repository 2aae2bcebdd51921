"""Compare a stream with a plain batch job over the same rows: parse, filter, join with channels, count by minute.

The batch job reads only the rows of its round. The stream keeps its windows in state and its position in a checkpoint,
and writes a window when the watermark has passed it. The script prints a table of docs/performance.md.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from bids import BID, CHANNELS, PARTITIONS, bids, broker_of, into_files, into_topic, parsed
from deltalake import write_deltalake
from side_by_side import Work, compare, median, peak, print_header, print_row, ratios, work

from tidemill import DeltaAppend, DeltaSource, FileSource, KafkaSource, Pipeline
from tidemill.target.target import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPIC = "bids"
PARTS = 8


def main() -> None:
    """Measure and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--records", type=int, default=1_000_000)
    arguments.add_argument("--sources", nargs="+", choices=["files", "topic"], default=["files", "topic"])
    options = arguments.parse_args()
    print_header(
        f"{options.records:,} records", "batch job", "Tidemill", "ratio", "of CPU", "memory", "Tidemill"
    )
    for source in options.sources:
        with broker_of(source, TOPIC) as bootstrap:

            def arrive(root: Path, number: int, bootstrap: str = bootstrap) -> None:
                if not number:
                    channels(root)
                size = options.records // PARTS
                first = number * options.records
                parts = [list(bids(size, first=first + n * size, seed=n)) for n in range(PARTS)]
                if bootstrap:
                    into_topic(parts, bootstrap, TOPIC)
                else:
                    into_files(parts, root / "landing", f"{number:03}")

            runs = compare(WAYS, arrive, rounds=options.rounds, case={"bootstrap": bootstrap})
        batch, ours = runs["batch job"], runs["Tidemill"]
        print_row(
            source,
            *(median(batch), median(ours), ratios(ours, batch), ratios(ours, batch, "cpu")),
            *(peak(batch), peak(ours)),
        )


def channels(root: Path) -> None:
    """Write the table that the bids are joined with."""
    names = [f"channel-{number}" for number in range(CHANNELS)]
    campaigns = [f"campaign-{number % 50}" for number in range(CHANNELS)]
    write_deltalake(str(root / "channels"), pa.table({"channel": names, "campaign": campaigns}))


def counted(rows: "DataFrame", channels: "DataFrame") -> "DataFrame":
    """Return the bids of each campaign and minute that are worth something."""
    from pyspark.sql import functions as F

    worth = rows.where("price > 1000000").join(F.broadcast(channels), "channel")
    minutes = worth.groupBy(F.window("date_time", "1 minute"), "campaign")
    return minutes.agg(F.count("*").alias("bids"), F.sum("price").alias("price"))


def batch(given: Work) -> Callable[[], object]:
    """Return a function that counts what has arrived since the last time in a batch job."""
    import json

    spark, bootstrap = given.spark, given.case["bootstrap"]
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    numbers = iter(range(1_000_000))
    ends: dict[str, int] = dict.fromkeys(map(str, range(PARTITIONS)), 0)

    def rows() -> "DataFrame":
        if not bootstrap:
            return spark.read.schema(BID).json(str(given.root / "landing" / f"{next(numbers):03}-*.json"))
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        reader = reader.option("subscribe", TOPIC).option("startingOffsets", json.dumps({TOPIC: ends}))
        return parsed(reader.load())

    def run() -> None:
        channels = spark.read.format("delta").load(str(given.root / "channels"))
        counted(rows(), channels).write.format("delta").mode("append").save(str(given.own / "table"))
        if bootstrap:
            ends.update(ends_of(bootstrap))

    return run


def ends_of(bootstrap: str) -> dict[str, int]:
    """Return the ends of the topic's partitions."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    try:
        return {
            str(number): consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=30)[1]
            for number in range(PARTITIONS)
        }
    finally:
        consumer.close()


def tidemill(given: Work) -> Callable[[], object]:
    """Return a function that counts what has arrived with Tidemill."""
    scratch = given.scratch()
    channels = DeltaSource(path=str(given.root / "channels"), mode="static")
    pipeline = Pipeline("bench")
    if given.case["bootstrap"]:
        scratch.clusters["default"] = KafkaCluster(bootstrap=given.case["bootstrap"])
        source = KafkaSource(subscribe=TOPIC, max_records_per_batch=None)

        def function(rows: "DataFrame", channels: "DataFrame") -> "DataFrame":
            return counted(parsed(rows).withWatermark("date_time", "1 minute"), channels)
    else:
        files = FileSource(
            path=str(given.root / "landing"), format="json", schema=BID, max_files_per_batch=None
        )
        source = files.with_watermark("date_time", "1 minute")
        function = counted
    declare = pipeline.stream(
        source={"rows": source, "channels": channels}, sink=DeltaAppend(), name="minutes"
    )
    stream = declare(function)
    return lambda: scratch.run(stream)


WAYS = {"batch job": batch, "Tidemill": tidemill}

if __name__ == "__main__":
    work(WAYS) or main()

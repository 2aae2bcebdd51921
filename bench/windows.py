"""Measure the two batches of a windowed count by key, and what confs do to them.

The query is in plain PySpark with the confs that Tidemill sets. Its first batch reads bids, nearly all with keys of
their own, and its second one has no data: it writes the windows that the watermark has passed, and removes them from
the state. The script prints a table of docs/performance.md.
"""

import argparse
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

from bids import BID, bids, into_files
from side_by_side import Batches, Measured, Work, compare, median, peak, print_header, print_row, ratios, work

PARTS = 8
ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
LEVERS = {
    "as Tidemill sets it": {},
    "rows in state not counted": {f"{ROCKSDB}.trackTotalNumberOfRows": "false"},
    "HDFS-backed store": {"spark.sql.streaming.stateStore.providerClass": HDFS},
    "no checksums of the checkpoint's files": {
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false"
    },
}


def main() -> None:
    """Measure and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--records", type=int, default=920_000)
    options = arguments.parse_args()

    def arrive(root: Path, number: int) -> None:
        size = options.records // PARTS
        parts = [list(bids(size, first=n * size, seed=n)) for n in range(PARTS)]
        into_files(parts, root / "landing" / str(number), "bids")

    runs = compare(WAYS, arrive, rounds=options.rounds, memory="2g")
    print_header(f"{options.records:,} bids", "with data", "ratio", "without data", "ratio", "memory")
    base = next(iter(runs.values()))
    for name, those in runs.items():
        cells = [
            cell
            for position in (0, 1)
            for cell in (
                median(batch(those, position)),
                ratios(batch(those, position), batch(base, position)),
            )
        ]
        print_row(name, *cells, peak(those))


def batch(runs: list[Measured], position: int) -> list[Measured]:
    """Return what a batch of each query took."""
    return [Measured(run.batches[position], run.peak_mb) for run in runs]


def counted(given: Work, confs: dict[str, str]) -> Callable[[], Batches]:
    """Return a function that counts the bids of a round in a new query, and returns the seconds of its batches."""
    from pyspark.sql import functions as F

    spark = given.spark_as_ours()
    for key, value in confs.items():
        spark.conf.set(key, value)
    numbers = count()

    def run() -> Batches:
        own = given.own / str(number := next(numbers))
        rows = spark.readStream.name("bids").schema(BID).json(str(given.root / "landing" / str(number)))
        windows = rows.withWatermark("date_time", "10 seconds").groupBy(
            F.window("date_time", "10 seconds"), "auction"
        )
        writer = windows.count().writeStream.format("delta").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(own / "checkpoint")).start(str(own / "table"))
        query.awaitTermination()
        return Batches([progress.durationMs["triggerExecution"] / 1000 for progress in query.recentProgress])

    return run


WAYS = {name: partial(counted, confs=confs) for name, confs in LEVERS.items()}

if __name__ == "__main__":
    work(WAYS) or main()

"""Compare a feed in Tidemill with the same ingest by hand, from files and from a topic.

By hand, files are read with Spark's JSON source and messages with `from_json`, into a Delta table with Spark's own
sink: nothing is separated, counted or recorded. Tidemill parses the records, judges them by three rules, adds their
origin, and moves the refused ones to quarantine.

Both have a process and a JVM of their own, read the same input, and run alternately; the first round warms up both. A
round is one batch. The script prints a table of docs/performance.md: medians, the ratio of the times and that of the
CPU seconds of the JVMs (which other work on the machine changes less), and the peak memory of each JVM (VmHWM).
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from pipelines.streaming import DeltaAppend, Feed, Pipeline, QueryOptions, from_json
from pipelines.streaming.records.lake import Lake
from pipelines.streaming.run.classic import jvm_pid
from pipelines.streaming.target import KafkaCluster, TopicBinding
from pipelines.streaming.testing import Scratch
from resources.dev.broker import Broker
from resources.engine.engine import SparkEngine
from resources.engine.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BID = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP, extra STRING"
RULES = {
    "auction_known": "auction IS NOT NULL",
    "price_positive": "price > 0",
    "time_known": "date_time IS NOT NULL",
}
FEED = "bids"
FILES = 8
PARTITIONS = 4


def main() -> None:
    """Measure and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--records", type=int, default=500_000)
    arguments.add_argument(
        "--refused", type=float, nargs="+", default=[0.0, 0.03], help="shares, such as 0.03"
    )
    arguments.add_argument("--sources", nargs="+", choices=["files", "topic"], default=["files", "topic"])
    arguments.add_argument("--memory", default="1g", help="the heap of each JVM")
    arguments.add_argument("--worker", choices=["by hand", "Tidemill"], help=argparse.SUPPRESS)
    arguments.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    arguments.add_argument("--bootstrap", default="", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.worker:
        work(options)
        return
    print(
        f"| {options.records:,} records | by hand | Tidemill | ratio | ratio of CPU | memory by hand | Tidemill |"
    )
    print("|---|---|---|---|---|---|---|")
    for source in options.sources:
        for refused in options.refused:
            print(compared(source, refused, options), flush=True)


def compared(source: str, refused: float, options: argparse.Namespace) -> str:
    """Return a line of the table: the two alternately over the same input."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        landing = root / "landing" / FEED
        landing.mkdir(parents=True)
        broker = stack.enter_context(Broker()) if source == "topic" else None
        if broker is not None:
            broker.create_topic(FEED, partitions=PARTITIONS)
        pool = [list(lines(options.records // FILES, refused, seed)) for seed in range(FILES)]
        bootstrap = "" if broker is None else broker.bootstrap
        workers = {
            name: stack.enter_context(Worker(name, root, bootstrap, options.memory))
            for name in ("by hand", "Tidemill")
        }
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in workers}
        for number in range(options.rounds + 1):
            arrive(pool, number, landing, bootstrap)
            for name in workers if number % 2 else reversed(workers):
                measured = workers[name].run()
                if number:  # the first round warms up both
                    runs[name].append(measured)
    hand, ours = ([run["seconds"] for run in runs[name]] for name in ("by hand", "Tidemill"))
    ratios = [b / a for a, b in zip(hand, ours, strict=True)]
    cpu = [b["cpu"] / a["cpu"] for a, b in zip(runs["by hand"], runs["Tidemill"], strict=True)]
    peaks = [f"{run[-1]['peak_mb']:,.0f} MB" for run in runs.values()]
    return (
        f"| {source}, {refused:.0%} refused | {statistics.median(hand):.1f} s | {statistics.median(ours):.1f} s "
        f"| {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) "
        f"| {statistics.median(cpu):.2f} ({min(cpu):.2f} to {max(cpu):.2f}) | {peaks[0]} | {peaks[1]} |"
    )


def lines(count: int, refused: float, seed: int) -> Iterator[str]:
    """Yield bids as JSON; half of those to refuse are cut off, and the others have no valid price."""
    chance = random.Random(seed)
    for number in range(count):
        bid = {
            "auction": chance.randrange(100_000),
            "bidder": chance.randrange(50_000),
            "price": chance.randrange(1, 10_000_000),
            "channel": f"channel-{chance.randrange(1000)}",
            "url": f"https://www.example.com/{chance.randrange(10**6)}/item.htm?query=1&id={chance.randrange(10**7)}",
            "date_time": f"2026-01-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.000Z",
            "extra": f"{chance.getrandbits(128):032x}",
        }
        lot = chance.random()
        if lot < refused / 2:
            bid["price"] = -1
        record = json.dumps(bid)
        yield record[:-5] if refused / 2 <= lot < refused else record


def arrive(pool: list[list[str]], number: int, landing: Path, bootstrap: str) -> None:
    """Put the records where both read them."""
    if not bootstrap:
        for position, part in enumerate(pool):
            temporary = landing / f".{number:03}-{position}"
            temporary.write_text("\n".join(part) + "\n", encoding="utf-8")
            temporary.replace(landing / f"{number:03}-{position}.json")
        return
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 200_000})
    for part in pool:
        for position, record in enumerate(part):
            producer.produce(FEED, value=record, partition=position % PARTITIONS)
            if position % 100_000 == 0:
                producer.flush()
        producer.flush()


class Worker:
    """A process that ingests what has arrived each time that it is asked to."""

    def __init__(self, name: str, root: Path, bootstrap: str, memory: str) -> None:
        options = ["--worker", name, "--root", str(root), "--bootstrap", bootstrap, "--memory", memory]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self) -> dict[str, float]:
        """Return what a run took."""
        print("run", file=self._process.stdin, flush=True)
        return dict(json.loads(next(iter(self._process.stdout or []))))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def work(options: argparse.Namespace) -> None:
    """Run once per line of stdin, and print what each run took."""
    engine = SparkEngine(SparkSettings(shuffle_partitions=2, driver_memory=options.memory))
    spark = engine.new()
    jvm = psutil.Process(jvm_pid(spark))
    run = by_hand(spark, options) if options.worker == "by hand" else tidemill(engine, options)
    for _ in sys.stdin:
        before, began = jvm.cpu_times(), time.perf_counter()
        run()
        seconds, after = time.perf_counter() - began, jvm.cpu_times()
        cpu = after.user + after.system - before.user - before.system
        status = Path(f"/proc/{jvm.pid}/status").read_text(encoding="utf-8")
        (peak,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
        print(json.dumps({"seconds": seconds, "cpu": cpu, "peak_mb": peak / 1024}), flush=True)
    engine.stop()


def by_hand(spark: "SparkSession", options: argparse.Namespace) -> Any:
    """Return a function that ingests what has arrived with plain PySpark."""
    from pyspark.sql import functions as F

    for key, value in QueryOptions().confs(default_partitions=2).items():
        spark.conf.set(key, value)

    def rows() -> "DataFrame":
        reader = spark.readStream.name("source")
        if not options.bootstrap:
            return reader.schema(BID).json(str(options.root / "landing" / FEED))
        reader = reader.format("kafka").option("kafka.bootstrap.servers", options.bootstrap)
        messages = reader.option("subscribe", FEED).option("startingOffsets", "earliest").load()
        return messages.select(F.from_json(F.col("value").cast("string"), BID).alias("bid")).select("bid.*")

    def run() -> None:
        writer = rows().writeStream.format("delta").option("path", str(options.root / "by_hand" / "table"))
        writer = writer.option("checkpointLocation", str(options.root / "by_hand" / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    return run


def tidemill(engine: SparkEngine, options: argparse.Namespace) -> Any:
    """Return a function that ingests what has arrived with Tidemill."""
    scratch = Scratch(lake=Lake.at(options.root / "lake"), landing=options.root / "landing", engine=engine)
    if options.bootstrap:
        scratch.bindings[FEED] = TopicBinding(KafkaCluster(bootstrap=options.bootstrap), FEED)
    feed = Feed(FEED, value=from_json(BID), quarantine=RULES, max_records_per_batch=None)
    bids = Pipeline("bench").stream(source=feed, sink=DeltaAppend(), name="bids")(lambda rows: rows)
    return lambda: scratch.run(bids)


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    main()

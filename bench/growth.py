"""Measure increments of one pipeline as its history grows: a feed, a count by minute and a merge.

Each increment brings 50 rows in a file of their own. The increments that are measured, around the 10th, the 100th and
the 1,000th, are runs of their own, in a warm JVM. Those in between are batches of a few runs, one file each: they
leave the same commits, checkpoints and ledger behind in less time. The tables are maintained every hundred increments.
After the 100th only the feed continues: a batch of 50 rows takes about a second.

The script prints a table of docs/performance.md: what an increment takes, what the process and its JVM read for it, how
many files the lake has, and the most memory of the JVM.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
from side_by_side import peak_mb, print_header, print_row

from tidemill import DeltaAppend, DeltaMerge, Feed, Json, Pipeline
from tidemill.definitions.stream import Stream
from tidemill.engines.engine import SparkEngine
from tidemill.operations.housekeeping.maintain import maintain
from tidemill.run.execute.pipeline_run import PipelineRun
from tidemill.run.spark.classic import jvm_pid
from tidemill.storage.lake import Lake
from tidemill.target.spark_settings import SparkSettings
from tidemill.testing import Scratch

ROWS = 50
MAINTAIN_EVERY = 100
ALL_UNTIL = 100
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Increment:
    """What an increment took.

    Attributes:
        seconds: Wall time by stream.
        read_mb: What this process and its JVM have read for the first stream, in MB, from files and sockets.
    """

    seconds: dict[str, float]
    read_mb: float


def main() -> None:
    """Measure and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--increments", type=int, default=1000)
    arguments.add_argument(
        "--around", type=int, default=3, help="how many are measured before and after a mark"
    )
    options = arguments.parse_args()
    marks = [mark for mark in (10, 100, 1000) if mark <= options.increments]
    engine = SparkEngine(SparkSettings(shuffle_partitions=2))
    pipeline = growing()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Scratch(
            lake=Lake.at(Path(folder) / "lake"), landing=Path(folder) / "landing", engine=engine
        )
        names = [stream.name.stream for stream in pipeline]
        print_header(
            "increment", *(f"{name}, to the first" for name in names), "read for ingest", "files", "memory"
        )
        done, first = 0, {}
        for mark in marks:
            streams = list(pipeline) if mark <= ALL_UNTIL else [pipeline["ingest"]]
            grow(scratch, pipeline, streams, range(done, mark - options.around))
            done = mark + options.around
            around = [increment(scratch, streams, number) for number in range(mark - options.around, done)]
            seconds = {
                name: statistics.median(one.seconds[name] for one in around) for name in around[0].seconds
            }
            first = first or seconds
            print_row(
                f"{mark:,}",
                *(
                    f"{seconds[name]:.2f} s, {seconds[name] / first[name]:.2f}" if name in seconds else ""
                    for name in names
                ),
                f"{statistics.median(one.read_mb for one in around):.1f} MB",
                f"{sum(path.is_file() for path in Path(scratch.lake.uri).rglob('*')):,}",
                f"{peak_mb(jvm_pid(engine.new())):,.0f} MB",
            )
    engine.stop()


def growing() -> Pipeline:
    """Return the pipeline."""
    from pyspark.sql import functions as F

    pipeline = Pipeline("growth")

    feed = Feed("rows", format=Json("id BIGINT, at TIMESTAMP"), max_files_per_batch=1)

    @pipeline.stream(source=feed, sink=DeltaAppend())
    def ingest(rows):  # noqa: ANN001, ANN202
        return rows

    added = ingest.limited(max_files_per_batch=1)

    @pipeline.stream(source=added.with_watermark("at", "1 minute"), sink=DeltaAppend())
    def minutes(ingest):  # noqa: ANN001, ANN202
        return ingest.groupBy(F.window("at", "1 minute")).count()

    @pipeline.stream(source=added, sink=DeltaMerge(keys=["id"], sequence_by="at"))
    def newest(ingest):  # noqa: ANN001, ANN202
        return ingest

    return pipeline


def grow(scratch: Scratch, pipeline: Pipeline, streams: list[Stream], numbers: range) -> None:
    """Read increments in batches of a few runs, and maintain the tables after each run."""
    for first in range(numbers.start, numbers.stop, MAINTAIN_EVERY):
        for number in numbers[first - numbers.start :][:MAINTAIN_EVERY]:
            arrive(scratch, number)
        run(scratch, streams)
        for stream in streams:
            maintain(stream, scratch.target, scratch.engine, streams=list(pipeline))  # all of its readers


def increment(scratch: Scratch, streams: list[Stream], number: int) -> Increment:
    """Run streams once on the rows of an increment."""
    arrive(scratch, number)
    seconds, read = {}, [read_mb(scratch)]
    for stream in streams:
        began = time.perf_counter()
        run(scratch, [stream])
        seconds[stream.name.stream] = time.perf_counter() - began
        read.append(read_mb(scratch))
    return Increment(seconds, read[1] - read[0])


def arrive(scratch: Scratch, number: int) -> None:
    """Put the rows of an increment into the landing folder: a minute of event time each."""
    at = START + timedelta(minutes=number)
    scratch.drop_file("rows", [{"id": n + number * 10, "at": at.isoformat()} for n in range(ROWS)])


def run(scratch: Scratch, streams: list[Stream]) -> None:
    """Run streams until their sources have nothing more."""
    together = PipelineRun(
        streams, target=scratch.target, engine=scratch.engine, run_id=str(time.time_ns()), max_parallel=2
    )
    failed = [result.error for result in together.iter_results() if result.error]
    if failed:
        raise failed[0]


def read_mb(scratch: Scratch) -> float:
    """Return what this process and its JVM have read so far."""
    jvm = psutil.Process(jvm_pid(scratch.engine.new()))
    return sum(process.io_counters().read_chars for process in (psutil.Process(), jvm)) / 1e6


if __name__ == "__main__":
    main()

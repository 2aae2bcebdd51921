"""Measure increments of one pipeline from the first to the thousandth: a feed, a count by minute and a merge.

Each increment brings 50 rows in a file of their own; the tables are maintained every hundred increments. The script
prints a table of docs/performance.md: what an increment takes around the 10th, the 100th and the 1,000th, what the
process and its JVM read for it, and how many files the lake has.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
from side_by_side import print_header, print_row

from pipelines.streaming import DeltaAppend, DeltaMerge, Feed, Pipeline, from_json
from pipelines.streaming.lifecycle import maintain
from pipelines.streaming.records.lake import Lake
from pipelines.streaming.run.classic import jvm_pid
from pipelines.streaming.run.pipeline_run import PipelineRun
from pipelines.streaming.testing import Scratch
from resources.engine.engine import SparkEngine
from resources.engine.settings import SparkSettings

ROWS = 50
AROUND = 5
MAINTAIN_EVERY = 100
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Increment:
    """What an increment took.

    Attributes:
        seconds: Wall time of all streams, one after the other.
        by_stream: Wall time by stream.
        read_mb: What this process and its JVM have read, in MB, from files and sockets.
    """

    seconds: float
    by_stream: dict[str, float]
    read_mb: float


def main() -> None:
    """Measure and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--increments", type=int, default=1000)
    options = arguments.parse_args()
    marks = [mark for mark in (10, 100, 1000) if mark <= options.increments]
    engine = SparkEngine(SparkSettings(shuffle_partitions=2))
    pipeline = growing()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Scratch(
            lake=Lake.at(Path(folder) / "lake"), landing=Path(folder) / "landing", engine=engine
        )
        print_header("increment", "all streams", "to the first", *pipeline_names(pipeline), "read", "files")
        those: list[Increment] = []
        first = 0.0
        for number in range(options.increments + AROUND):
            arrive(scratch, number)
            those.append(increment(scratch, pipeline))
            if number and number % MAINTAIN_EVERY == 0:
                for stream in pipeline:
                    maintain(stream, scratch.target, scratch.engine, streams=list(pipeline))
            if number - AROUND + 1 in marks:
                around = those[-2 * AROUND + 1 :]
                seconds = statistics.median(one.seconds for one in around)
                first = first or seconds
                files = sum(path.is_file() for path in scratch.lake.root.rglob("*"))
                print_row(
                    f"{number - AROUND + 1:,}",
                    f"{seconds:.2f} s",
                    f"{seconds / first:.2f}",
                    *(
                        f"{statistics.median(one.by_stream[name] for one in around):.2f} s"
                        for name in pipeline_names(pipeline)
                    ),
                    f"{statistics.median(one.read_mb for one in around):.1f} MB",
                    f"{files:,}",
                )
    engine.stop()


def growing() -> Pipeline:
    """Return the pipeline."""
    from pyspark.sql import functions as F

    pipeline = Pipeline("growth")

    @pipeline.stream(source=Feed("rows", value=from_json("id BIGINT, at TIMESTAMP")), sink=DeltaAppend())
    def ingest(rows):  # noqa: ANN001, ANN202
        return rows

    @pipeline.stream(source=ingest.with_watermark("at", "1 minute"), sink=DeltaAppend())
    def minutes(ingest):  # noqa: ANN001, ANN202
        return ingest.groupBy(F.window("at", "1 minute")).count()

    @pipeline.stream(source=ingest, sink=DeltaMerge(keys=["id"], sequence_by="at"))
    def newest(ingest):  # noqa: ANN001, ANN202
        return ingest

    return pipeline


def pipeline_names(pipeline: Pipeline) -> list[str]:
    """Return the names of the streams."""
    return [stream.name.stream for stream in pipeline]


def arrive(scratch: Scratch, number: int) -> None:
    """Put the rows of an increment into the landing folder: a minute of event time each."""
    at = START + timedelta(minutes=number)
    scratch.drop_file("rows", [{"id": n + number * 10, "at": at.isoformat()} for n in range(ROWS)])


def increment(scratch: Scratch, pipeline: Pipeline) -> Increment:
    """Run all streams once."""
    before, began = read_mb(scratch), time.perf_counter()
    by_stream = {}
    for stream in pipeline:
        start = time.perf_counter()
        run = PipelineRun(
            [stream], target=scratch.target, engine=scratch.engine, run_id=str(time.time_ns()), max_parallel=1
        )
        (result,) = run.iter_results()
        if result.error:
            raise result.error
        by_stream[stream.name.stream] = time.perf_counter() - start
    seconds = time.perf_counter() - began
    return Increment(seconds, by_stream, read_mb(scratch) - before)


def read_mb(scratch: Scratch) -> float:
    """Return what this process and its JVM have read so far."""
    jvm = psutil.Process(jvm_pid(scratch.engine.new()))
    return sum(process.io_counters().read_chars for process in (psutil.Process(), jvm)) / 1e6


if __name__ == "__main__":
    main()

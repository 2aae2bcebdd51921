"""Compare runs whose watermark is continued from run to run with runs of plain Spark's watermarks, alternately.

Two streams have the same left join of views and clicks. Before each run views arrive, or clicks, or both. One stream
declares its watermarks on the sources, so that each run moves the watermark of a query that never stops, and emits what
it closes. The other sets them in its function, which Tidemill leaves as Spark has them: it emits where both have
arrived, by a batch without data. Where one input has news, the continued stream has a batch more, which emits what
Spark leaves in the state. So the script prints for each kind of run the medians of the whole, of the batch that reads
the rows, and of what is outside of batches: there is the second start of the query. docs/performance.md has them.
"""

import argparse
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import DataFrame

from tidemill import DeltaAppend, Feed, Json, Pipeline, QueryOptions
from tidemill import functions as F
from tidemill.engines.engine import SparkEngine
from tidemill.storage.lake import Lake
from tidemill.target.spark_settings import SparkSettings
from tidemill.testing import Scratch

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = {"views": ("id", "at"), "clicks": ("of", "clicked")}


def shop() -> Pipeline:
    """Return the two streams, and those whose tables they read."""
    pipeline = Pipeline("shop")
    inputs = {
        name: pipeline.stream(
            source=Feed(name, format=Json(f"{key} STRING, {at} TIMESTAMP")), sink=DeltaAppend(), name=name
        )(lambda rows: rows)
        for name, (key, at) in COLUMNS.items()
    }

    def pairs(views: DataFrame, clicks: DataFrame) -> DataFrame:
        near = (F.col("of") == F.col("id")) & F.expr("clicked BETWEEN at AND at + INTERVAL 10 MINUTES")
        return views.join(clicks, near, "left").select("id", "of")

    def by_hand(views: DataFrame, clicks: DataFrame) -> DataFrame:
        return pairs(views.withWatermark("at", "10 minutes"), clicks.withWatermark("clicked", "10 minutes"))

    query = QueryOptions(shuffle_partitions=2)
    declared = {
        name: stream.with_watermark(COLUMNS[name][1], "10 minutes") for name, stream in inputs.items()
    }
    pipeline.stream(source=declared, sink=DeltaAppend(), query=query, name="continued")(pairs)
    pipeline.stream(source=inputs, sink=DeltaAppend(), query=query, name="plain")(by_hand)
    return pipeline


def main() -> None:
    """Measure and print the line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=30)
    arguments.add_argument("--rows", type=int, default=20_000)
    options = arguments.parse_args()
    pipeline = shop()
    engine = SparkEngine(SparkSettings(shuffle_partitions=2))
    seconds: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Scratch(
            lake=Lake.at(Path(folder) / "lake"), landing=Path(folder) / "landing", engine=engine
        )
        for name in COLUMNS:
            arrive(scratch, pipeline, name, START, 0)
        for number in range(options.rounds + 2):
            arriving = (("views",), ("clicks",), ("views", "clicks"))[number % 3]
            for name in arriving:
                arrive(scratch, pipeline, name, START + timedelta(minutes=30 * number), options.rows)
            kind = "both inputs" if len(arriving) > 1 else "one input"
            for name in sorted(("continued", "plain"), reverse=number % 2 > 0):
                began = time.perf_counter()
                [result] = scratch.run(pipeline[name])
                whole = time.perf_counter() - began
                batches = [batch.milliseconds["triggerExecution"] / 1000 for batch in result.batches]
                if number > 1:  # the first runs of both sides warm up
                    seconds.setdefault((kind, name), []).append((whole, batches[0], whole - sum(batches)))
    engine.stop()
    for kind in ("one input", "both inputs"):
        print(f"{kind}, {len(seconds[kind, 'plain'])} runs of {options.rows:,} rows:")
        columns = {name: [*zip(*seconds[kind, name], strict=True)] for name in ("continued", "plain")}
        for part, what in enumerate(("whole run", "batch that reads", "outside of batches")):
            continued, plain = (statistics.median(columns[name][part]) for name in ("continued", "plain"))
            print(f"  {what}: continued {continued:.2f} s, plain {plain:.2f} s ({continued / plain:.2f})")


def arrive(scratch: Scratch, pipeline: Pipeline, name: str, time_of_rows: datetime, rows: int) -> None:
    """Add rows of one moment to the table of an input."""
    key, at = COLUMNS[name]
    schema = pa.schema({key: pa.string(), at: pa.timestamp("us", "UTC")})
    table = pa.Table.from_pylist(
        [{key: f"{time_of_rows:%H%M}-{number}", at: time_of_rows} for number in range(rows)], schema
    )
    write_deltalake(scratch.lake.table(pipeline[name].name).uri, table, mode="append")


if __name__ == "__main__":
    main()

"""Streams on a warm server, and a run of them: `python -m tests.streaming.warm_streams FOLDER STREAM ...`.

A batch waits in a task while FOLDER/pause exists: WARM_FOLDER names FOLDER for the server, whose Python runs it.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

from pyspark.sql import functions as F

from pipelines.streaming import DeltaAppend, DeltaMerge, FileSource, Pipeline
from tests.small import SMALL

ROOT = Path(__file__).parents[2]
ROW = "key STRING, n BIGINT"


def _pause(value):
    folder = Path(os.environ["WARM_FOLDER"])
    if (folder / "pause").exists():
        (folder / "reached").touch()
    while (folder / "pause").exists():
        (folder / "waits").touch()
        time.sleep(0.05)
    return value


def streams(folder: Path) -> Pipeline:
    """Spark's own sink, and a merge in a foreachBatch function."""
    pipeline = Pipeline("warm")
    source = FileSource(path=str(folder / "landing"), format="json", schema=ROW)

    @pipeline.stream(source=source, sink=DeltaAppend())
    def copied(rows):
        return rows.withColumn("key", F.udf(_pause, "string")("key"))

    @pipeline.stream(source=source, sink=DeltaMerge(keys=["key"], sequence_by="n"))
    def newest(rows):
        return rows.withColumn("key", F.udf(_pause, "string")("key"))

    @pipeline.stream(source=source, sink=DeltaAppend())
    def edited(rows):
        from edited_code import suffixed  # a module next to the lake

        return rows.withColumn("key", F.udf(suffixed, "string")("key"))

    return pipeline


def settings(folder: Path, **changes):
    """The Spark of the runs."""
    from resources.engine.settings import SparkSettings
    from resources.engine.warm.home import ServerHome

    return SparkSettings(
        **{
            "mode": "warm",
            "master": "local[2]",
            "driver_memory": "1g",
            "shuffle_partitions": 2,
            "idle_timeout": timedelta(minutes=5),
            "server": ServerHome("dev", ROOT, folder / "server"),
            "conf": SMALL,
            **changes,
        }
    )


def main() -> None:
    """One run."""
    from pipelines.streaming.records.lake import Lake
    from pipelines.streaming.run.pipeline_run import PipelineRun
    from pipelines.streaming.testing import Scratch
    from resources.engine.engine import SparkEngine

    folder = Path(sys.argv[1])
    os.environ["WARM_FOLDER"] = str(folder)
    engine = SparkEngine(settings(folder))
    target = Scratch(lake=Lake.at(folder / "lake"), landing=folder / "landing", engine=engine).target
    run = PipelineRun(
        [streams(folder)[name] for name in sys.argv[2:]], target=target, engine=engine, run_id="run"
    )
    failures = [result.error for result in run.iter_results() if result.error is not None]
    engine.stop()
    if failures:
        raise failures[0]


if __name__ == "__main__":
    main()

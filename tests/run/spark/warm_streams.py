"""Streams on a warm server, and a run of them: `python -m tests.run.spark.warm_streams FOLDER [--follow] STREAM ...`.

A run that follows its sources ends when FOLDER/end exists. A batch waits in a task while FOLDER/pause exists:
WARM_FOLDER names FOLDER for the server, whose Python runs it.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

from pyspark.sql import functions as F

from tests.support.small import SMALL
from tidemill import DeltaAppend, DeltaMerge, FileSource, Pipeline

ROOT = Path(__file__).parents[3]
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
    from tidemill.target.server_home import ServerHome
    from tidemill.target.spark_settings import SparkSettings

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


def scratch_of(folder: Path):
    """The lake of the runs, on their Spark."""
    from tidemill.engines.engine import SparkEngine
    from tidemill.storage.lake import Lake
    from tidemill.testing import Scratch

    return Scratch(
        lake=Lake.at(folder / "lake"), landing=folder / "landing", engine=SparkEngine(settings(folder))
    )


def follow(folder: Path, scratch, followed):
    """Run streams until they are asked to end."""
    from tidemill.run.execute.follow import Follow
    from tidemill.run.execute.pipeline_run import PipelineRun

    until_end = Follow()

    def end() -> None:
        if (folder / "end").exists():
            until_end.ended.set()

    run = PipelineRun(
        followed, target=scratch.target, engine=scratch.engine, run_id="follow", follow=until_end
    )
    return list(run.iter_results(on_wait=end))


def main() -> None:
    """One run."""
    folder = Path(sys.argv[1])
    os.environ["WARM_FOLDER"] = str(folder)
    scratch, names = scratch_of(folder), sys.argv[2:]
    if names[0] == "--follow":
        results = follow(folder, scratch, [streams(folder)[name] for name in names[1:]])
    else:
        results = scratch.run_all([streams(folder)[name] for name in names])
    failures = [result.error for result in results if result.error is not None]
    scratch.engine.stop()
    if failures:
        raise failures[0]


if __name__ == "__main__":
    main()

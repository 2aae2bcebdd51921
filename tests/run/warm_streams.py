"""Streams on a warm server, and a run of them: `python -m tests.run.warm_streams FOLDER STREAM ...`.

A batch waits in a task while FOLDER/pause exists: WARM_FOLDER names FOLDER for the server, whose Python runs it.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

from pyspark.sql import functions as F

from tests.small import SMALL
from tidemill import DeltaAppend, DeltaMerge, FileSource, Pipeline

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


def main() -> None:
    """One run."""
    folder = Path(sys.argv[1])
    os.environ["WARM_FOLDER"] = str(folder)
    scratch = scratch_of(folder)
    results = scratch.run_all([streams(folder)[name] for name in sys.argv[2:]])
    failures = [result.error for result in results if result.error is not None]
    scratch.engine.stop()
    if failures:
        raise failures[0]


if __name__ == "__main__":
    main()

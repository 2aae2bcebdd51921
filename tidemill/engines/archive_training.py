"""Small streams of every kind, run by a JVM that archives the classes that it has loaded: see class_archive.py."""

import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.connectors.feed import Feed
from tidemill.connectors.formats.json import Json
from tidemill.definitions.pipeline import Pipeline
from tidemill.engines.engine import SparkEngine
from tidemill.engines.installed import pyspark_folder
from tidemill.engines.jars import spark_jars
from tidemill.engines.java import find_java
from tidemill.sinks.delta_append import DeltaAppend
from tidemill.sinks.delta_merge import DeltaMerge
from tidemill.storage.lake import Lake
from tidemill.target.spark_settings import SparkSettings
from tidemill.testing import Scratch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LEAVES_OUT_DOUBLES = 21


def main(archive: str) -> None:
    """Run the streams twice."""
    pipeline = Pipeline("training")

    @pipeline.stream(
        source=Feed("rows", format=Json("id INT, at TIMESTAMP"), rules={"positive": "id > 0"}),
        sink=DeltaAppend(),
    )
    def ingest(rows: "DataFrame") -> "DataFrame":
        return rows

    @pipeline.stream(source=ingest.with_watermark("at", "1 minute"), sink=DeltaAppend())
    def minutes(ingest: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        return ingest.groupBy(F.window("at", "1 minute")).count()

    @pipeline.stream(source=ingest, sink=DeltaMerge(keys=["id"], sequence_by="at"))
    def newest(ingest: "DataFrame") -> "DataFrame":
        return ingest

    at_exit = shlex.quote(f"-XX:ArchiveClassesAtExit={archive}")
    options = f"{at_exit} -Xlog:disable {_class_path()}"
    settings = SparkSettings(conf={"spark.driver.extraJavaOptions": options})
    engine = SparkEngine(settings)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Scratch(
            lake=Lake.at(Path(folder) / "lake"), landing=Path(folder) / "landing", engine=engine
        )
        for minute in range(2):
            rows = [{"id": number, "at": f"2026-01-01T00:0{minute}:00Z"} for number in range(3)]
            scratch.drop_file("rows", rows)
            failed = [result.error for result in scratch.run_all(list(pipeline)) if result.error]
            if failed:
                raise failed[0]
        engine.stop()


def _class_path() -> str:
    """Return the option that gives the training the class path of a run, with no path twice.

    Spark's launcher puts slf4j-api before all jars, where it is once more. Java 21 leaves out the second one when it
    writes an archive but not when it compares the class paths, and would ignore the archive. It compares files, so the
    jars may have other paths here. Java 25 compares paths.
    """
    java = find_java()
    if java is None or java.numbers[0] != _LEAVES_OUT_DOUBLES:
        return ""
    jars = pyspark_folder() / "jars"
    first = [*spark_jars(), *jars.glob("slf4j-api-*.jar")]
    return f"-cp {shlex.quote(':'.join(map(str, [*first, f'{jars}/./*'])))}"


if __name__ == "__main__":
    main(sys.argv[1])

"""A project whose target has a query listener and a sink of Spark's metrics, and its runs by the command."""

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from pyspark import find_spark_home

from tests.conformance import gallery
from tests.support.small import SMALL
from tidemill.engines.java import find_java

LISTENER = """
package monitored
import java.nio.file.{Files, Paths, StandardOpenOption}
import org.apache.spark.SparkConf
import org.apache.spark.sql.streaming.StreamingQueryListener
import org.apache.spark.sql.streaming.StreamingQueryListener._

class Slow(conf: SparkConf) extends StreamingQueryListener {
  private var name = ""
  private def write(event: String): Unit = {
    Thread.sleep(300)  // behind the query at its end
    Files.writeString(Paths.get(conf.get("spark.monitored.events")), s"$name $event\\n",
      StandardOpenOption.CREATE, StandardOpenOption.APPEND)
  }
  override def onQueryStarted(e: QueryStartedEvent): Unit = { name = e.name; write("started") }
  override def onQueryProgress(e: QueryProgressEvent): Unit = write(s"progress ${e.progress.batchId}")
  override def onQueryTerminated(e: QueryTerminatedEvent): Unit =
    write(if (e.exception.isDefined) "failed" else "terminated")
}
"""
PIPELINE = """
from tidemill import DeltaAppend, DeltaMerge, FileSource, Pipeline, QueryOptions
from tidemill import functions as F

shop = Pipeline("shop")
views = FileSource(path="{landing}", format="json", schema="user STRING, n BIGINT", max_files_per_batch=1)

@shop.stream(source=views, sink=DeltaMerge(keys=["user"]), query=QueryOptions(output_mode="update"))
def mon_metrics(views):
    slept = views.withColumn("slept", F.expr("java_method('java.lang.Thread', 'sleep', 700L)"))
    return slept.groupBy("user").agg(F.count("slept").alias("n"))

@shop.stream(
    source=views,
    sink=DeltaAppend(),
    query=QueryOptions(options={"spark.sql.streaming.metricsEnabled": "false"}),
)
def mon_listener(views):
    return views.select("n", F.expr("CASE WHEN n = 3 THEN CAST(raise_error('three') AS STRING) END").alias("three"))
"""


@dataclass(frozen=True)
class Project:
    """A project in a folder."""

    root: Path

    def run(self, *flags):
        """`tidemill run`; returns its JSON."""
        command = [str(Path(sys.executable).with_name("tidemill")), "run", "--json", *flags]
        out, errors = self.root / "out", self.root / "errors"  # files: the end of a pipe is that of the JVM
        with out.open("w") as stdout, errors.open("w") as stderr:
            subprocess.run(
                command, cwd=self.root, env=self.environment, stdout=stdout, stderr=stderr, check=False
            )
        assert out.read_text(), errors.read_text()
        return json.loads(out.read_text())

    @property
    def environment(self):
        """The environment of its processes."""
        return os.environ | {"TIDEMILL_CONFIG": str(self.root / "tidemill.toml")}

    def events(self):
        """What the listener has written, by query."""
        events = {}
        path = self.root / "events"
        for line in path.read_text().splitlines() if path.exists() else ():
            query, _, event = line.partition(" ")
            events.setdefault(query, []).append(event)
        return events

    def gauges(self):
        """The values of each gauge of Spark's streaming metrics, by query and name."""
        gauges = {}
        for path in (self.root / "metrics").glob("*.spark.streaming.*.csv"):
            query, _, gauge = path.name.partition(".spark.streaming.")[2].removesuffix(".csv").rpartition(".")
            values = [float(line.split(",")[1]) for line in path.read_text().splitlines()[1:]]
            gauges.setdefault(query, {})[gauge] = values
        return gauges


def compiled(folder):
    """Write the jar of the listener, by the compiler that is among Spark's jars: a machine may have no javac."""
    source, jar = folder / "Slow.scala", folder / "monitored.jar"
    source.write_text(LISTENER)
    jars = str(Path(find_spark_home._find_spark_home()) / "jars" / "*")
    compiler = [find_java().path, "-cp", jars, "scala.tools.nsc.Main", "-usejavacp", "-d", jar, source]
    subprocess.run(compiler, check=True)
    assert "monitored/Slow.class" in zipfile.ZipFile(jar).namelist()


def project(root, **spark):
    """A project with a listener and with metrics as CSV files, whose streams have three files to read."""
    landing = root / "landing"
    landing.mkdir(parents=True)
    for number in (1, 2, 3):
        path = landing / f"{number}.json"
        path.write_text(f'{{"user": "u{number}", "n": {number}}}\n')
        os.utime(path, (number, number))
    (root / "monitored_case.py").write_text(PIPELINE.replace("{landing}", str(landing)))
    compiled(root)
    (root / "metrics").mkdir()
    settings = {"master": "local[2]", "shuffle_partitions": 1} | spark
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    heading, *listener = gallery.mon_listener().replace("/srv/shop", str(root)).splitlines()
    _, *metrics = gallery.mon_metrics().replace("/srv/shop", str(root)).splitlines()
    lines += [
        heading,
        *listener,
        *metrics,
        *(f'"{key}" = {json.dumps(value)}' for key, value in SMALL.items()),
    ]
    toml = 'pipelines = ["monitored_case:shop"]\n[targets.dev]\nlake = "lake"\n[targets.dev.spark]\n'
    (root / "tidemill.toml").write_text(toml + "\n".join(lines) + "\n")
    return Project(root)

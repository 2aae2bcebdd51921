"""Compare an increment as a whole process: cold in local Spark, on a warm server, and in a script of plain PySpark.

First three stateless hops: JSON files, and two Delta tables after another. Then the nine streams of `ads`, without the
script. The processes run alternately and are timed from the outside; each round brings new input. The first rounds
start the server, create the tables and warm the server up, and do not count. The script of plain PySpark has the same
confs, without the options of our JVM. This script prints a table of docs/performance.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from side_by_side import print_header, print_row

WARM_UP = 2
CONFIG = """
pipelines = ["hops:hops", "pipelines.ads:ads"]
[targets.local]
lake = "local"
landing = "landing"
[targets.warm]
lake = "warm"
landing = "landing"
[targets.warm.spark]
mode = "warm"
idle_timeout = "1 hour"
"""
HOPS = '''
from pyspark.sql import functions as F
from pipelines.streaming import DeltaAppend, FileSource, Pipeline

hops = Pipeline("hops")

@hops.stream(
    source=FileSource(path="{landing}/rows", format="json", schema="id BIGINT, word STRING"), sink=DeltaAppend()
)
def first(rows):
    """The rows as they arrive."""
    return rows

@hops.stream(source=first, sink=DeltaAppend())
def second(rows):
    """Words in upper case."""
    return rows.withColumn("word", F.upper("word"))

@hops.stream(source=second, sink=DeltaAppend())
def third(rows):
    """Every other row."""
    return rows.where("id % 2 = 0")
'''
BY_HAND = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from resources.engine.launch import application_confs
from resources.engine.settings import SparkSettings
root = sys.argv[1]
builder = SparkSession.builder
for key, value in application_confs(SparkSettings()).items():
    if key not in ("spark.driver.extraJavaOptions", "spark.driver.extraClassPath"):
        builder = builder.config(key, value)
spark = builder.getOrCreate()
def run(rows, name):
    writer = rows.writeStream.format("delta").option("checkpointLocation", f"{root}/by_hand/{name}.ck")
    writer.trigger(availableNow=True).start(f"{root}/by_hand/{name}").awaitTermination()
def table(name):
    return spark.readStream.format("delta").load(f"{root}/by_hand/{name}")
run(spark.readStream.schema("id BIGINT, word STRING").json(f"{root}/landing/rows"), "first")
run(table("first").withColumn("word", F.upper("word")), "second")
run(table("second").where("id % 2 = 0"), "third")
spark.stop()
"""


def main() -> None:
    """Measure and print the lines."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--rows", type=int, default=25_000)
    arguments.add_argument("--only", choices=("hops", "ads"))
    options = arguments.parse_args()
    tidemill = str(Path(sys.executable).with_name("tidemill"))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "tidemill.toml").write_text(CONFIG)
        (root / "hops.py").write_text(HOPS.format(landing=root / "landing"))
        (root / "landing" / "rows").mkdir(parents=True)
        ours = {target: [tidemill, "run", "--target", target] for target in ("warm", "local")}
        hops = {target: [*command, "hops"] for target, command in ours.items()}
        hops["by hand"] = [sys.executable, "-c", BY_HAND, folder]
        ads = {target: [*command, "ads"] for target, command in ours.items()}
        print_header("an increment", "process", "time", "ratio")
        try:
            if options.only != "ads":
                measure(
                    root, "three hops", hops, options.rounds, lambda number: rows(root, number, options.rows)
                )
            if options.only != "hops":
                measure(root, "ads", ads, options.rounds, lambda number: events(root, tidemill, number))
        finally:
            run([tidemill, "engine", "stop", "--target", "warm", "--yes"], root)


def measure(root: Path, name: str, commands: dict[str, list[str]], rounds: int, arrive) -> None:  # noqa: ANN001
    """Run the commands in turn, and print their times."""
    times: dict[str, list[float]] = {command: [] for command in commands}
    for number in range(rounds + WARM_UP):
        arrive(number)
        for command, words in commands.items():
            seconds = run(words, root)
            if number >= WARM_UP:
                times[command].append(seconds)
    base = times.get("by hand", times["local"])
    for command, seconds in times.items():
        ratios = [a / b for a, b in zip(seconds, base, strict=True)]
        print_row(
            *(name, command, f"{statistics.median(seconds):.1f} s"),
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        )


def rows(root: Path, number: int, count: int) -> None:
    """Write a file of rows."""
    first = number * count
    lines = "".join(json.dumps({"id": first + n, "word": f"word {n}"}) + "\n" for n in range(count))
    (root / "landing" / "rows" / f"{number}.json").write_text(lines)


def events(root: Path, tidemill: str, number: int, count: int = 20_000) -> None:
    """Write ad events."""
    span = ["--start", str(number * count), "--events", str(count), "--files", "2"]
    run([tidemill, "demo", "generate", "--out", str(root / "landing"), *span], root)


def run(command: list[str], root: Path) -> float:
    """Run a process and return its seconds."""
    environ = os.environ | {"TIDEMILL_CONFIG": str(root / "tidemill.toml")}
    began = time.perf_counter()
    done = subprocess.run(command, check=False, capture_output=True, cwd=root, env=environ, text=True)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout}{done.stderr}")
    return time.perf_counter() - began


if __name__ == "__main__":
    main()

"""Compare an increment as a whole process: Tidemill cold and on a warm server, plain PySpark, and two peers.

First three stateless hops: JSON files, and two Delta tables after another. The peers are Spark Declarative Pipelines
and plain Dagster assets with dagster-pyspark. All have the same confs, without the options of our JVM. Then the
streams of `ads` on the warm server. The processes run alternately and are timed from the outside: in each round without
new rows, and with a new file. Peers run with a new file only, because their processes take long. Each way reads 500,000
rows first, which does not count. The script compares the last table of each way with the input, and prints the tables
of docs/performance.md.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from bench.increment.processes import BIN, FIRST, HERE, Processes, Way
from bench.side_by_side import median, peak, print_header, print_row
from tidemill.engines.launch import application_confs
from tidemill.target.spark_settings import SparkSettings

CONFIG = """
pipelines = ["bench.increment.hops:hops", "pipelines.ads:ads"]
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
SPEC = """
name: hops
storage: file://{root}/declarative
libraries:
  - glob:
      include: declarative.py
"""


def main() -> None:
    """Measure and print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--rows", type=int, default=25_000)
    arguments.add_argument("--first", type=int, default=FIRST)
    arguments.add_argument("--only", choices=("hops", "ads"))
    arguments.add_argument("--without-peers", action="store_true")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        processes = Processes(Path(folder), CONFIG)
        try:
            if options.only != "ads":
                confs = confs_of_spark()
                ways = ways_by_hand_and_ours(processes, confs)
                if not options.without_peers:
                    ways |= ways_of_peers(processes, confs)
                processes.compare(ways, options.rounds, options.rows, first=options.first)
            if options.only != "hops":
                measure_ads(processes, options.rounds)
        finally:
            processes.run([BIN / "tidemill", "engine", "stop", "--target", "warm", "--yes"])


def ways_by_hand_and_ours(processes: Processes, confs: dict[str, str]) -> dict[str, Way]:
    """Return plain PySpark first, and then Tidemill."""
    processes.environ["HOPS_CONFS"] = json.dumps(confs)
    root = processes.root
    return {
        "plain PySpark": Way(
            [sys.executable, HERE / "by_hand.py", root / "by_hand"], root / "by_hand" / "third"
        ),
        "Tidemill, mode `local`": processes.tidemill("local"),
        "Tidemill, mode `warm`": processes.tidemill("warm", is_warm=True),
    }


def ways_of_peers(processes: Processes, confs: dict[str, str]) -> dict[str, Way]:
    """Return Spark Declarative Pipelines and Dagster assets, and configure both."""
    root = processes.root
    configure_declarative(root, confs)
    (root / "dagster").mkdir()
    processes.environ |= {"HOPS_ASSETS": str(root / "assets"), "DAGSTER_HOME": str(root / "dagster")}
    declarative = [BIN / "spark-pipelines", "run", "--remote", confs["spark.master"]]
    assets = [BIN / "dagster", "asset", "materialize", "--select", "*", "-m", "bench.increment.assets"]
    return {
        "Spark Declarative Pipelines": Way(
            ["env", f"SPARK_CONF_DIR={root}/declarative", *declarative],
            root / "declarative" / "warehouse" / "third",
            only_new_rows=True,
        ),
        "Dagster assets with dagster-pyspark": Way(assets, root / "assets" / "third", only_new_rows=True),
    }


def confs_of_spark() -> dict[str, str]:
    """Return the confs that all ways have: ours, without the options of the JVM."""
    confs = application_confs(SparkSettings(shuffle_partitions=2))
    jvm = ("spark.driver.extraJavaOptions", "spark.driver.extraClassPath")
    return {key: value for key, value in confs.items() if key not in jvm}


def configure_declarative(root: Path, confs: dict[str, str]) -> None:
    """Write what `spark-pipelines` reads: its specification, and the confs that it takes from a folder only."""
    (root / "spark-pipeline.yml").write_text(SPEC.format(root=root))
    shutil.copy(HERE / "declarative.py", root)  # a specification names files of its folder only
    confs = {
        **{key: value for key, value in confs.items() if key != "spark.master"},
        "spark.sql.sources.default": "delta",
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{root}/declarative/warehouse",
        "spark.driver.extraClassPath": confs["spark.jars"].replace(",", ":"),
    }
    (root / "declarative").mkdir()
    lines = "".join(f"{key} {value}\n" for key, value in confs.items())
    (root / "declarative" / "spark-defaults.conf").write_text(lines)


def measure_ads(processes: Processes, rounds: int, events: int = 20_000) -> None:
    """Measure `ads` on the warm server, and print a line."""
    runs = []
    for number in range(rounds + 1):
        generate = ["demo", "generate", "--out", str(processes.root / "landing"), "--files", "2"]
        generate += ["--start", str(number * events), "--events", str(events)]
        processes.run([BIN / "tidemill", *generate])
        one = processes.run([BIN / "tidemill", "run", "ads", "--target", "warm"], is_warm=True)
        runs += [one] if number else []
    print_header("`ads`", "time", "memory")
    print_row(f"{events:,} events, mode `warm`", median(runs), peak(runs))


if __name__ == "__main__":
    main()

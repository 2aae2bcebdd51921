"""Compare an increment as a whole process: Tidemill cold and on a warm server, plain PySpark, and two peers.

First three stateless hops: JSON files, and two Delta tables after another. The peers are Spark Declarative Pipelines
and plain Dagster assets with dagster-pyspark. All have the same confs, without the options of our JVM. Then the nine
streams of `ads` on the warm server. The processes run alternately and are timed from the outside: in each round without
new rows, and with a new file. Peers run with a new file only, because their processes take long. Each way reads 500,000
rows first, which does not count. The script compares the last table of each way with the input, and prints the tables
of docs/performance.md.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from deltalake import DeltaTable

from bench.side_by_side import Measured, median, peak, peak_mb, print_header, print_row, ratios
from resources.engine.launch import application_confs
from resources.engine.settings import SparkSettings

HERE = Path(__file__).parent
FIRST = 500_000
BIN = Path(sys.executable).parent
LOOK_EVERY = 0.1
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


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run the hops.

    Attributes:
        command: The words of its command.
        table: The folder of its last table.
        is_warm: Whether it runs on the warm server.
        is_peer: Whether it is measured with new rows only, because its processes take long.
    """

    command: Sequence[str | Path]
    table: Path
    is_warm: bool = False
    is_peer: bool = False


def main() -> None:
    """Measure and print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--rows", type=int, default=25_000)
    arguments.add_argument("--only", choices=("hops", "ads"))
    arguments.add_argument("--without-peers", action="store_true")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        try:
            if options.only != "ads":
                bench.measure_hops(options.rounds, options.rows, peers=not options.without_peers)
            if options.only != "hops":
                bench.measure_ads(options.rounds)
        finally:
            bench.run([BIN / "tidemill", "engine", "stop", "--target", "warm", "--yes"])


class Bench:
    """A folder with the input and the tables of all ways."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.landing = root / "landing" / "rows"
        self.landing.mkdir(parents=True)
        (root / "dagster").mkdir()
        (root / "tidemill.toml").write_text(CONFIG)
        confs = application_confs(SparkSettings(shuffle_partitions=2))
        jvm = ("spark.driver.extraJavaOptions", "spark.driver.extraClassPath")
        self.confs = {key: value for key, value in confs.items() if key not in jvm}
        self._configure_declarative()
        self.environ = os.environ | {
            "TIDEMILL_CONFIG": str(root / "tidemill.toml"),
            "HOPS_LANDING": str(self.landing),
            "HOPS_CONFS": json.dumps(self.confs),
            "HOPS_ASSETS": str(root / "assets"),
            "DAGSTER_HOME": str(root / "dagster"),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(HERE.parent.parent),
        }
        self.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as in the Makefile: modules are compiled once

    def _configure_declarative(self) -> None:
        """Write what `spark-pipelines` reads: its specification, and the confs that it takes from a folder only."""
        root = self.root
        (root / "spark-pipeline.yml").write_text(SPEC.format(root=root))
        shutil.copy(HERE / "declarative.py", root)  # a specification names files of its folder only
        confs = {
            **{key: value for key, value in self.confs.items() if key != "spark.master"},
            "spark.sql.sources.default": "delta",
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.warehouse.dir": f"{root}/declarative/warehouse",
            "spark.driver.extraClassPath": self.confs["spark.jars"].replace(",", ":"),
        }
        (root / "declarative").mkdir()
        lines = "".join(f"{key} {value}\n" for key, value in confs.items())
        (root / "declarative" / "spark-defaults.conf").write_text(lines)

    def measure_hops(self, rounds: int, rows: int, *, peers: bool) -> None:
        """Measure the three hops in each way, and print a line for each."""
        ways = {name: way for name, way in self.ways().items() if peers or not way.is_peer}
        end = 0
        idle: dict[str, list[Measured]] = {name: [] for name in ways}
        busy: dict[str, list[Measured]] = {name: [] for name in ways}
        for number in range(rounds + 1):
            if number:  # the first load does not count
                for name, way in ways.items():
                    if not way.is_peer:
                        idle[name].append(self.run(way.command, is_warm=way.is_warm))
            arriving = range(end, end + (rows if number else FIRST))
            end = arriving.stop
            self.arrive(arriving)
            for name, way in ways.items():
                one = self.run(way.command, is_warm=way.is_warm)
                if number:
                    busy[name].append(one)
        base = "plain PySpark"
        print_header(
            "three hops", "nothing new", "ratio", f"{rows:,} rows more", "ratio", "memory", "last table"
        )
        for name, way in ways.items():
            runs = busy[name]
            nothing_new = ("", "")
            if not way.is_peer:
                nothing_new = median(idle[name], digits=2), ratios(idle[name], idle[base])
            more = median(runs), ratios(runs, busy[base]), peak(runs)
            print_row(name, *nothing_new, *more, behind(way.table, end))

    def measure_ads(self, rounds: int, events: int = 20_000) -> None:
        """Measure `ads` on the warm server, and print a line."""
        runs = []
        for number in range(rounds + 1):
            generate = ["demo", "generate", "--out", str(self.root / "landing"), "--files", "2"]
            self.run([BIN / "tidemill", *generate, "--start", str(number * events), "--events", str(events)])
            one = self.run([BIN / "tidemill", "run", "ads", "--target", "warm"], is_warm=True)
            runs += [one] if number else []
        print_header("`ads`", "time", "memory")
        print_row(f"{events:,} events, mode `warm`", median(runs), peak(runs))

    def arrive(self, ids: range) -> None:
        """Write a file of rows."""
        lines = "".join(json.dumps({"id": n, "word": f"word {n}"}) + "\n" for n in ids)
        (self.landing / f"{ids.start}.json").write_text(lines)

    def ways(self) -> dict[str, Way]:
        """Return the ways to run the hops, plain PySpark first."""
        root = self.root
        tidemill = [BIN / "tidemill", "run", "hops", "--target"]
        return {
            "plain PySpark": Way(
                [sys.executable, HERE / "by_hand.py", root / "by_hand"], root / "by_hand" / "third"
            ),
            "Tidemill, mode `local`": Way([*tidemill, "local"], root / "local" / "tables" / "hops" / "third"),
            "Tidemill, mode `warm`": Way(
                [*tidemill, "warm"], root / "warm" / "tables" / "hops" / "third", is_warm=True
            ),
            "Spark Declarative Pipelines": Way(
                [
                    "env",
                    f"SPARK_CONF_DIR={root}/declarative",
                    BIN / "spark-pipelines",
                    "run",
                    "--remote",
                    self.confs["spark.master"],
                ],
                root / "declarative" / "warehouse" / "third",
                is_peer=True,
            ),
            "Dagster assets with dagster-pyspark": Way(
                [BIN / "dagster", "asset", "materialize", "--select", "*", "-m", "bench.increment.assets"],
                root / "assets" / "third",
                is_peer=True,
            ),
        }

    def run(self, command: Sequence[str | Path], *, is_warm: bool = False) -> Measured:
        """Run a process and return what it took."""
        words = [str(word) for word in command]
        began, most = time.perf_counter(), 0.0
        with (self.root / "output").open("w+") as output:
            process = psutil.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.root, env=self.environ
            )
            while process.poll() is None:
                most = max(most, resident_mb(process))
                time.sleep(LOOK_EVERY)
            seconds = time.perf_counter() - began
            if process.returncode:
                output.seek(0)
                raise SystemExit(
                    f"{' '.join(words)} ended with status {process.returncode}:\n{output.read()}"
                )
        return Measured(seconds, most + (self.server_mb() if is_warm else 0))

    def server_mb(self) -> float:
        """Return the most memory of the warm server's processes so far."""
        command = [BIN / "tidemill", "engine", "status", "--target", "warm", "--json"]
        answer = subprocess.run(command, check=True, capture_output=True, cwd=self.root, env=self.environ)
        server = json.loads(answer.stdout)["server"]
        return sum(peak_mb(server[pid]) for pid in ("pid", "jvm_pid"))


def behind(table: Path, end: int) -> str:
    """Return how many rows the last table lacks.

    Args:
        table: The folder of the table.
        end: How many rows the input has.
    """
    columns = DeltaTable(str(table)).to_pyarrow_table(columns=["id", "word"])
    rows = Counter(zip(columns["id"].to_pylist(), columns["word"].to_pylist(), strict=True))
    expected = Counter((n, f"WORD {n}") for n in range(0, end, 2))
    if rows - expected:
        raise SystemExit(f"{table} has rows that are not in the input, or has them more than once.")
    lacking = (expected - rows).total()
    return f"{lacking:,} rows behind" if lacking else "complete"


def resident_mb(process: psutil.Process) -> float:
    """Return the resident memory of a process and its children."""
    total = 0
    try:
        for one in (process, *process.children(recursive=True)):
            total += one.memory_info().rss
    except psutil.NoSuchProcess:  # it has ended since
        pass
    return total / 2**20


if __name__ == "__main__":
    main()

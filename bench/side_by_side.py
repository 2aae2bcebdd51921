"""Several ways to do the same work, each in a process and a JVM of its own, run alternately over the same input.

A script that compares ways gives them to `compare` as functions by name. It starts itself once more per way, with the
way's name in a variable of the environment, and asks each process in turn to do the work once. The first round creates
tables and warms up the JVMs, and does not count.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from tidemill import QueryOptions
from tidemill.engines.engine import SparkEngine
from tidemill.run.spark.classic import jvm_pid
from tidemill.storage.lake import Lake
from tidemill.target.spark_settings import SparkSettings
from tidemill.testing import Scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

_WORK = "TIDEMILL_BENCH_WORK"


@dataclass(frozen=True, slots=True)
class Measured:
    """What doing the work once took.

    Attributes:
        seconds: Wall time.
        peak_mb: The most memory so far, in MB: of the JVM, or of all processes.
        cpu: CPU seconds of the JVM, where they are measured.
        batches: The seconds of each batch, if the way returns them.
    """

    seconds: float
    peak_mb: float
    cpu: float = 0.0
    batches: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Batches:
    """What a way returns for the seconds of its batches to be measured."""

    seconds: Sequence[float]


@dataclass(frozen=True, slots=True)
class Work:
    """What a way works with.

    Attributes:
        root: The folder that all ways share; their input is in it.
        own: A folder of this way's own.
        case: What the script said about the case.
        engine: Spark.
    """

    root: Path
    own: Path
    case: Mapping[str, Any]
    engine: SparkEngine

    @property
    def spark(self) -> "SparkSession":
        """A session."""
        return self.engine.new()

    def spark_as_ours(self) -> "SparkSession":
        """Return a session for plain PySpark, with the confs that Tidemill sets for a query."""
        spark = self.spark
        for key, value in QueryOptions().confs(default_partitions=2).items():
            spark.conf.set(key, value)
        return spark

    def finish(self, writer: "DataStreamWriter") -> None:
        """Run a query of plain PySpark until it has read what there is."""
        writer = writer.option("checkpointLocation", str(self.own / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def scratch(self) -> Scratch:
        """Return a lake of this way's own, whose feeds are folders of the shared `landing`."""
        return Scratch(lake=Lake.at(self.own / "lake"), landing=self.root / "landing", engine=self.engine)


Way = Callable[[Work], Callable[[], object]]


def compare(
    ways: Mapping[str, Way],
    arrive: Callable[[Path, int], None],
    *,
    rounds: int,
    case: Mapping[str, Any] | None = None,
    memory: str = "1g",
) -> dict[str, list[Measured]]:
    """Return what each way took in each round.

    Args:
        ways: The ways by name; a way returns the function that does the work once.
        arrive: Puts the input of a round into the shared folder.
        rounds: How many rounds count.
        case: What the ways get to know.
        memory: The heap of each JVM.
    """
    runs: dict[str, list[Measured]] = {name: [] for name in ways}
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        workers = {name: stack.enter_context(_Worker(name, root, case or {}, memory=memory)) for name in ways}
        for number in range(rounds + 1):
            arrive(root, number)
            for name in workers if number % 2 else reversed(workers):
                measured = workers[name].measure()
                if number:
                    runs[name].append(measured)
    return runs


def ratios(runs: Sequence[Measured], base: Sequence[Measured], what: str = "seconds") -> str:
    """Return the median of the ratios of each round, and the least and the greatest, for a table."""
    of_rounds = [getattr(a, what) / getattr(b, what) for a, b in zip(runs, base, strict=True)]
    return f"{statistics.median(of_rounds):.2f} ({min(of_rounds):.2f} to {max(of_rounds):.2f})"


def median(runs: Sequence[Measured], digits: int = 1) -> str:
    """Return the median of the times, for a table."""
    return f"{statistics.median(run.seconds for run in runs):.{digits}f} s"


def peak(runs: Sequence[Measured]) -> str:
    """Return the most memory, for a table."""
    return f"{max(run.peak_mb for run in runs):,.0f} MB"


def peak_mb(pid: int) -> float:
    """Return the most resident memory of a process so far, in MB (VmHWM of proc_pid_status(5))."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    (most,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return most / 1024


def print_row(*cells: str) -> None:
    """Print a line of a table, at once: a run may take long."""
    print(f"| {' | '.join(cells)} |", flush=True)


def print_header(*cells: str) -> None:
    """Print the head of a table."""
    print_row(*cells)
    print("|" + "---|" * len(cells), flush=True)


def work(ways: Mapping[str, Way]) -> bool:
    """Do the work of a way if this process was started for that; return whether it was."""
    asked = os.environ.pop(_WORK, None)
    if asked is None:
        return False
    given = json.loads(asked)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    engine = SparkEngine(SparkSettings(shuffle_partitions=2, driver_memory=given["memory"]))
    root, name = Path(given["root"]), given["way"]
    own = root / name.replace(" ", "_")
    own.mkdir()
    run = ways[name](Work(root, own, given["case"], engine))
    jvm = psutil.Process(jvm_pid(engine.new()))
    for _ in sys.stdin:
        before, began = jvm.cpu_times(), time.perf_counter()
        result = run()
        seconds, after = time.perf_counter() - began, jvm.cpu_times()
        cpu = after.user + after.system - before.user - before.system
        batches = result.seconds if isinstance(result, Batches) else ()
        print(json.dumps(asdict(Measured(seconds, peak_mb(jvm.pid), cpu, batches))), flush=True)
    engine.stop()
    return True


class _Worker:
    """A process that does the work of one way each time that it is asked to."""

    def __init__(self, way: str, root: Path, case: Mapping[str, Any], *, memory: str) -> None:
        self._way = way
        given = json.dumps({"way": way, "root": str(root), "case": dict(case), "memory": memory})
        self._process = subprocess.Popen(
            [sys.executable, sys.argv[0]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {_WORK: given},
        )

    def measure(self) -> Measured:
        """Return what doing the work once took."""
        print("work", file=self._process.stdin, flush=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise SystemExit(f"{self._way} has ended with status {self._process.wait()}; see above.")
        return Measured(**json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

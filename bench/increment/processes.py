"""Ways to run the three hops as whole processes, which run alternately over the same files."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from deltalake import DeltaTable

from bench.side_by_side import Measured, median, peak, peak_mb, print_header, print_row, ratios

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
FIRST = 500_000
LOOK_EVERY = 0.1


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run the hops.

    Attributes:
        command: The words of its command.
        table: The folder of its last table.
        is_warm: Whether it runs on the warm server.
        only_new_rows: Whether it is not measured without new rows.
    """

    command: Sequence[str | Path]
    table: Path
    is_warm: bool = False
    only_new_rows: bool = False


class Processes:
    """A folder with the input and the tables of all ways, and the processes that work in it."""

    def __init__(self, root: Path, config: str) -> None:
        self.root = root
        self.landing = root / "landing" / "rows"
        self.landing.mkdir(parents=True)
        (root / "tidemill.toml").write_text(config)
        self.environ = os.environ | {
            "TIDEMILL_CONFIG": str(root / "tidemill.toml"),
            "HOPS_LANDING": str(self.landing),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(HERE.parent.parent),
        }
        self.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as in the Makefile: modules are compiled once

    def tidemill(self, target: str, *, is_warm: bool = False, only_new_rows: bool = False) -> Way:
        """Return the hops of Tidemill in a target whose lake has the target's name."""
        return Way(
            [BIN / "tidemill", "run", "hops", "--target", target],
            self.root / target / "tables" / "hops" / "third",
            is_warm=is_warm,
            only_new_rows=only_new_rows,
        )

    def compare(self, ways: Mapping[str, Way], rounds: int, rows: int, *, first: int = FIRST) -> None:
        """Run each way in turn, without new rows and with a new file, and print a line for each.

        Args:
            ways: The ways by name; the others are compared with the first.
            rounds: How many rounds count.
            rows: How many rows are new in a round.
            first: How many rows each way reads before them.
        """
        end = 0
        idle: dict[str, list[Measured]] = {name: [] for name in ways}
        busy: dict[str, list[Measured]] = {name: [] for name in ways}
        for number in range(rounds + 1):
            if number:  # the first load does not count
                for name, way in ways.items():
                    if not way.only_new_rows:
                        idle[name].append(self.run(way.command, is_warm=way.is_warm))
            arriving = range(end, end + (rows if number else first))
            end = arriving.stop
            self._arrive(arriving)
            for name, way in ways.items():
                one = self.run(way.command, is_warm=way.is_warm)
                if number:
                    busy[name].append(one)
        base = next(iter(ways))
        print_header(
            "three hops", "nothing new", "ratio", f"{rows:,} rows more", "ratio", "memory", "last table"
        )
        for name, way in ways.items():
            runs = busy[name]
            nothing_new = ("", "")
            if not way.only_new_rows:
                nothing_new = median(idle[name], digits=2), ratios(idle[name], idle[base])
            more = median(runs), ratios(runs, busy[base]), peak(runs)
            print_row(name, *nothing_new, *more, _behind(way.table, end))

    def run(self, command: Sequence[str | Path], *, is_warm: bool = False) -> Measured:
        """Run a process and return what it took."""
        words = [str(word) for word in command]
        began, most = time.perf_counter(), 0.0
        with (self.root / "output").open("w+") as output:
            process = psutil.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.root, env=self.environ
            )
            while process.poll() is None:
                most = max(most, _resident_mb(process))
                time.sleep(LOOK_EVERY)
            seconds = time.perf_counter() - began
            if process.returncode:
                output.seek(0)
                raise SystemExit(
                    f"{' '.join(words)} ended with status {process.returncode}:\n{output.read()}"
                )
        return Measured(seconds, most + (self._server_mb() if is_warm else 0))

    def _arrive(self, ids: range) -> None:
        """Write a file of rows."""
        lines = "".join(json.dumps({"id": n, "word": f"word {n}"}) + "\n" for n in ids)
        (self.landing / f"{ids.start}.json").write_text(lines)

    def _server_mb(self) -> float:
        """Return the most memory of the warm server's processes so far."""
        command = [BIN / "tidemill", "engine", "status", "--target", "warm", "--json"]
        answer = subprocess.run(command, check=True, capture_output=True, cwd=self.root, env=self.environ)
        server = json.loads(answer.stdout)["server"]
        return sum(peak_mb(server[pid]) for pid in ("pid", "jvm_pid"))


def _behind(table: Path, end: int) -> str:
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


def _resident_mb(process: psutil.Process) -> float:
    """Return the resident memory of a process and its children."""
    total = 0
    try:
        for one in (process, *process.children(recursive=True)):
            total += one.memory_info().rss
    except psutil.NoSuchProcess:  # it has ended since
        pass
    return total / 2**20

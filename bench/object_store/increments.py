"""Measure small runs on an object store: `python -m bench.object_store.increments [--rounds 5]`.

Three hops in a row read 100 new rows, as whole processes: in a folder and on a store whose requests take 30 ms more,
each in Tidemill and by hand. They run alternately over the same files. The script prints the rows of a table of
docs/object-stores.md.
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
from typing import TYPE_CHECKING

from bench.object_store.server import SlowStore, count, slow_store

if TYPE_CHECKING:
    from collections import Counter

ROWS = 100
BIN = Path(sys.executable).parent
KINDS = ("GET", "HEAD", "LIST", "PUT", "DELETE", "POST")
CONFIG = """
pipelines = ["bench.increment.hops:hops"]
[targets.folder]
lake = "lake"
[targets.store]
lake = "s3://{bucket}/lake"
"""
COMMANDS = {
    "Tidemill, a folder": [BIN / "tidemill", "run", "hops", "--target", "folder"],
    "Tidemill, the store": [BIN / "tidemill", "run", "hops", "--target", "store"],
    "by hand, a folder": [sys.executable, "-m", "bench.object_store.by_hand", "folder"],
    "by hand, the store": [sys.executable, "-m", "bench.object_store.by_hand", "store"],
}


def main() -> None:
    """Measure and print the rows."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--milliseconds", type=float, default=30)
    arguments.add_argument("--addresses", action="store_true", help="print the requests of the last round")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemill-increments-") as name:
        folder = Path(name)
        (folder / "empty").mkdir()
        with slow_store(folder / "empty", options.milliseconds / 1000) as slow:
            _measure(folder, slow, options.rounds, addresses=options.addresses)


def _measure(folder: Path, slow: SlowStore, rounds: int, *, addresses: bool) -> None:
    landing = folder / "landing"
    landing.mkdir()
    config = CONFIG.format(bucket=slow.store.bucket) + slow.settings_of("store")
    (folder / "tidemill.toml").write_text(config, encoding="utf-8")
    environment = os.environ | {
        "BENCH_SECRET": "test",
        "HOPS_LANDING": str(landing),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    requests: dict[str, list[Counter[str]]] = {name: [] for name in COMMANDS}
    for number in range(rounds + 1):  # the first run creates everything, and does not count
        lines = [json.dumps({"id": number * ROWS + row, "word": f"word {row}"}) for row in range(ROWS)]
        (landing / f"{number}.json").write_text("\n".join(lines), encoding="utf-8")
        for name, command in COMMANDS.items():
            slow.requests()
            began = time.perf_counter()
            subprocess.run(command, check=True, cwd=folder, env=environment, capture_output=True)
            took, asked = time.perf_counter() - began, slow.requests()
            if number:
                seconds[name].append(took)
                requests[name].append(count(asked))
            if addresses and number == rounds:
                for kind, address in asked:
                    print(f"{name}: {kind} {address}")
    base = seconds["Tidemill, a folder"]
    print(f"| three hops, {ROWS} rows | time | ratio | requests |\n|---|---|---|---|")
    for name, times in seconds.items():
        ratio = statistics.median(one / other for one, other in zip(times, base, strict=True))
        total = statistics.median(one.total() for one in requests[name])
        kinds = ", ".join(
            f"{statistics.median(one[kind] for one in requests[name]):.0f} {kind}"
            for kind in KINDS
            if any(one[kind] for one in requests[name])
        )
        print(f"| {name} | {statistics.median(times):.1f} s | {ratio:.2f} | {total:.0f}: {kinds} |")


if __name__ == "__main__":
    main()

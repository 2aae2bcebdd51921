"""Measure operations on an object store: `python -m bench.object_store.operations [--runs 12]`.

Two streams run a few times, 100 rows in each, in a folder and on a store whose requests take 30 ms more. Then each
operation runs once, as a whole process. The script prints the rows of a table of docs/object-stores.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.object_store.server import SlowStore, count, slow_store

ROWS = 100
TIDEMILL = Path(sys.executable).with_name("tidemill")
KINDS = ("GET", "HEAD", "LIST", "PUT", "DELETE", "POST")
PIPELINE = """
from tidemill import DeltaAppend, DeltaMerge, Feed, Json, Pipeline
from tidemill import functions as F

shop = Pipeline("shop")

@shop.stream(source=Feed("events", Json("id BIGINT, at TIMESTAMP")), sink=DeltaAppend(), backfill_by="day")
def events(events):
    return events.withColumn("day", F.to_date("at"))

@shop.stream(source=events, sink=DeltaMerge(keys=["id"], sequence_by="at"))
def newest(events):
    return events
"""
CONFIG = """
pipelines = ["operations_case:shop"]
[targets.folder]
lake = "lake"
landing = "landing"
[targets.store]
lake = "s3://{bucket}/lake"
landing = "s3://{bucket}/landing"
"""
OPERATIONS = (
    "run",
    "status",
    "check",
    "checkpoint verify shop",
    "backfill shop/events --from 2026-01-02 --to 2026-01-03 --yes",
    "rewind shop/newest --to-batch 3 --yes",
    "rebuild shop/newest --yes",
    "reset shop/events --from now --table keep --yes",
    "maintain --yes",
    "prune --older-than 1h --yes",
)


def main() -> None:
    """Measure and print the rows."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=12)
    arguments.add_argument("--milliseconds", type=float, default=30)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemill-operations-") as name:
        folder = Path(name)
        (folder / "empty").mkdir()
        with slow_store(folder / "empty", options.milliseconds / 1000) as slow:
            _measure(folder, slow, options.runs)


def _measure(folder: Path, slow: SlowStore, runs: int) -> None:
    (folder / "operations_case.py").write_text(PIPELINE, encoding="utf-8")
    config = CONFIG.format(bucket=slow.store.bucket) + slow.settings_of("store")
    (folder / "tidemill.toml").write_text(config, encoding="utf-8")
    for number in range(runs):
        _arrive(folder, slow, number)
        for target in ("folder", "store"):
            _seconds(folder, "run", target)
    _arrive(folder, slow, runs)
    print("| operation | a folder | the store | requests |\n|---|---|---|---|")
    for operation in OPERATIONS:
        in_folder = _seconds(folder, operation, "folder")
        slow.requests()
        on_store = _seconds(folder, operation, "store")
        counts = count(slow.requests())
        kinds = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])
        words = operation.removesuffix(" --yes")
        print(f"| `{words}` | {in_folder:.1f} s | {on_store:.1f} s | {counts.total()}: {kinds} |", flush=True)


def _arrive(folder: Path, slow: SlowStore, number: int) -> None:
    """Add a file of rows, each of them of one of three days."""
    rows = [
        {"id": number * ROWS + row, "at": f"2026-01-0{row % 3 + 1}T00:{number % 60:02}:00Z"}
        for row in range(ROWS)
    ]
    content = "\n".join(map(json.dumps, rows)).encode()
    landing = folder / "landing" / "events"
    landing.mkdir(parents=True, exist_ok=True)
    (landing / f"{number:04d}.json").write_bytes(content)
    slow.store.create(f"landing/events/{number:04d}.json", content)


def _seconds(folder: Path, operation: str, target: str) -> float:
    environment = os.environ | {
        "BENCH_SECRET": "test",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    words = [str(TIDEMILL), *operation.split(), "--target", target]
    began = time.perf_counter()
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(words)} ended with status {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return time.perf_counter() - began


if __name__ == "__main__":
    main()

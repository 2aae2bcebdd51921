"""Measure decisions over a lake on an object store: `python -m bench.object_store.measure [--streams 100]`.

Each request takes 30 ms more. The script prints the rows of a table of docs/object-stores.md: the seconds and the
requests of a tick's decisions, of an idle `tidemill run` and of `tidemill status`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bench.object_store.lakes import LONG_BATCHES, declare, fill
from bench.object_store.server import SlowStore, count, slow_store
from tidemill.definitions.pipeline import Pipeline
from tidemill.run.decide.tick import decisions
from tidemill.storage.lake import Lake
from tidemill.target.target import Target

KINDS = ("GET", "HEAD", "LIST", "PUT", "DELETE")
MODULE = """
from bench.object_store.lakes import declare
many = declare({count})
"""
SETTINGS = """
pipelines = ["many_streams:many"]
[targets.dev]
lake = "s3://{bucket}"
landing = "landing"
"""


def main() -> None:
    """Measure and print the rows."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--streams", type=int, default=100)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--milliseconds", type=float, default=30)
    arguments.add_argument("--addresses", help="print the requests of the stream of this name")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemill-object-store-") as name:
        folder = Path(name)
        pipeline, target = prepared(folder, options.streams)
        with slow_store(folder / "lake", options.milliseconds / 1000) as slow:
            target = replace(target, lake=Lake(slow.store))
            settings = SETTINGS.format(bucket=slow.store.bucket) + slow.settings_of("dev")
            (folder / "tidemill.toml").write_text(settings, encoding="utf-8")
            (folder / "many_streams.py").write_text(MODULE.format(count=options.streams), encoding="utf-8")
            ways = {
                "the decisions of a tick": lambda: _decide(pipeline, target),
                "`tidemill run`, idle": lambda: _command(folder, "run"),
                "`tidemill status`": lambda: _command(folder, "status"),
            }
            for what, way in ways.items():
                seconds, requests = measured(way, slow, options.rounds)
                print(row(what, seconds, requests, options.streams), flush=True)
                if options.addresses:
                    for kind, address in requests:
                        if options.addresses in address:
                            print(f"  {kind} {address}")


def prepared(folder: Path, streams: int, *, longest: int = LONG_BATCHES) -> tuple[Pipeline, Target]:
    """Return a pipeline of idle streams, and a target with its lake in a folder; see `fill`."""
    landing = folder / "landing"
    pipeline = declare(streams)
    target = Target(name="bench", lake=Lake.at(folder / "lake"), default_binding=landing)
    fill(pipeline, target, landing, longest=longest)
    return pipeline, target


def measured(
    way: Callable[[], None], slow: SlowStore, rounds: int
) -> tuple[list[float], list[tuple[str, str]]]:
    """Return the seconds of each round and the requests of the last one, after a round that is not counted."""
    way()
    slow.requests()
    seconds, requests = [], []
    for _ in range(rounds):
        started = time.perf_counter()
        way()
        seconds.append(time.perf_counter() - started)
        requests = slow.requests()
    return seconds, requests


def row(what: str, seconds: list[float], requests: list[tuple[str, str]], streams: int) -> str:
    """Return a row of the table."""
    counts = count(requests)
    per_stream = ", ".join(f"{counts[kind] / streams:.2f} {kind}" for kind in KINDS if counts[kind])
    return (
        f"| {what} | {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f}) | "
        f"{len(requests) / streams:.2f}: {per_stream} |"
    )


def _decide(pipeline: Pipeline, target: Target) -> None:
    for decision in decisions(list(pipeline), target, now=datetime.now(UTC)):
        if decision.state != "idle":
            raise SystemExit(f"{decision.stream.name} is {decision.state}: {decision.reason}")


def _command(folder: Path, name: str) -> None:
    command = [str(Path(sys.executable).with_name("tidemill")), name, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "BENCH_SECRET": "test"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder, env=environment)
    states = {stream.get("outcome") or stream["state"] for stream in json.loads(done.stdout)["streams"]}
    if states != {"idle"}:
        raise SystemExit(done.stdout)


if __name__ == "__main__":
    main()

"""Measure ticks: `python -m bench.ticks.measure [--streams 10 100 500] [--rounds 5]`.

For each number of streams it prints a line of docs/performance.md: the seconds of the first tick of a process, of
the ticks after it when nothing is new, and of loading the definitions. The topics are those of a real broker.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.ticks.lakes import MESSAGES, Declared, declare, fill
from tidemill.engines.dev.broker import Broker
from tidemill.orchestration.automation.requests import tick
from tidemill.run.decide.tick import decisions
from tidemill.storage.lake import Lake
from tidemill.target.target import KafkaCluster, Target, TopicBinding

LOADS = 5
LOAD = """
import sys, time
started = time.perf_counter()
import orchestration.definitions as definitions
seconds = time.perf_counter() - started
from tidemill.orchestration.location import keys_by_stream, specs_of
assert len(keys_by_stream(specs_of(definitions.defs.assets))) == int(sys.argv[1])
print(seconds)
"""
MODULE = """
from pathlib import Path
from bench.ticks.lakes import declare
many = declare({count}, Path({sources!r})).pipeline
"""


def main() -> None:
    """Measure and print the lines."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--streams", type=int, nargs="+", default=[10, 100, 500])
    arguments.add_argument("--rounds", type=int, default=5)
    options = arguments.parse_args()
    with Broker() as broker:
        for count in options.streams:
            with tempfile.TemporaryDirectory(prefix="tidemill-ticks-") as folder:
                print(measured(count, Path(folder), broker.bootstrap, options.rounds), flush=True)


def measured(count: int, folder: Path, bootstrap: str, rounds: int) -> str:
    """Return the line for a number of streams."""
    landing, sources = folder / "landing", folder / "sources"
    declared = declare(count, sources)
    cluster = KafkaCluster(bootstrap=bootstrap)
    _produce(declared, bootstrap)
    target = Target(
        name="bench",
        lake=Lake.at(folder / "lake"),
        clusters={"default": cluster},
        feeds={topic: TopicBinding(cluster, topic) for topic in declared.topics},
        default_binding=landing,
    )
    fill(declared, target, landing, sources, folder / "scratch")
    states = {d.state for d in decisions(list(declared.pipeline), target, now=datetime.now(UTC))}
    seconds = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        decided = tick(
            declared.pipeline,
            target,
            candidates=list(declared.pipeline),
            covered={},
            now=datetime.now(UTC),
            conditions=True,
        )
        seconds.append(time.perf_counter() - started)
        if states != {"idle"} or decided.groups:
            problem = next(d for d in decided.decisions if d.state != "idle")
            raise SystemExit(f"{problem.stream.name} is {problem.state}: {problem.reason}")
    later = seconds[1:]
    return (
        f"{count} streams: a tick {statistics.median(later):.2f} s ({min(later):.2f} to {max(later):.2f}, median of "
        f"{rounds}), loading the definitions {_load(count, folder, sources):.2f} s"
    )


def _produce(declared: Declared, bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    known = admin.list_topics(timeout=10).topics
    missing = [topic for topic in declared.topics if topic not in known]
    if not missing:
        return
    for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in missing]).values():
        future.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic in missing:
        for number in range(MESSAGES):
            producer.produce(topic, str(number))
    producer.flush(30)


def _load(count: int, folder: Path, sources: Path) -> float:
    """Return the seconds in which a new process loads the definitions of these streams."""
    (folder / "many_streams.py").write_text(
        MODULE.format(count=count, sources=str(sources)), encoding="utf-8"
    )
    (folder / "tidemill.toml").write_text(
        'pipelines = ["many_streams:many"]\n[targets.dev]\nlake = "lake"\nlanding = "landing"\n',
        encoding="utf-8",
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{LOAD}", str(count)]
    # Python keeps compiled modules unless this variable is set, as in some containers; the first load writes them.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    times = [
        float(
            subprocess.run(
                command, check=True, capture_output=True, text=True, cwd=folder, env=environment
            ).stdout
        )
        for _ in range(LOADS + 1)
    ]
    return statistics.median(times[1:])


if __name__ == "__main__":
    main()

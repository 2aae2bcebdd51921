"""The runs of the streams of several rows: in this process, or on a warm server.

A process that has a Spark of its own cannot use another one through Spark Connect, so the runs on a warm server have a
process of their own: `python -m tests.conformance.streams.runs observing|stateful FOLDER`.
"""

import json
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

from tests.conformance.streams import observing, observing_oracle, stateful_oracle
from tests.conformance.streams.stateful import before_its_change, stateful, with_two_tables
from tests.run.spark.warm_streams import settings
from tests.support.killed import killed_when
from tidemill.engines.engine import SparkEngine
from tidemill.storage.lake import Lake
from tidemill.testing import Scratch

ROOT = Path(__file__).parents[3]
KILLED = 3
"""The run that is killed, when each stateful stream has written its first batch and not committed it."""


def scratch_in(folder, engine=None):
    """The lake and the landing folder of these runs."""
    landing = folder / "landing"
    for name in ("views", "clicks", "buys", "visits"):
        (landing / name).mkdir(parents=True, exist_ok=True)
    return Scratch(lake=Lake.at(folder / "lake"), landing=landing, engine=engine)


def observing_runs(scratch):
    """Run the streams that observe, and return what each run observed, by stream."""
    observed = []
    for run in observing_oracle.RUNS:
        for views in run:
            scratch.drop_file("views", observing_oracle.records(views))
        results = _good(scratch.run_all(observing.streams(scratch.landing)))
        observed.append({result.stream.stream: result.observed for result in results})
    return observed


def stateful_runs(scratch, *, kills_in=None):
    """Run the stateful streams after each arrival, and return what each run reported, by stream.

    Args:
        kills_in: A folder for the files of a run that is killed with SIGKILL; without one none is.
    """
    pipeline = stateful(scratch.landing)
    streams = with_two_tables(pipeline) if kills_in else list(pipeline)
    reported = []
    for number, inputs in enumerate(stateful_oracle.ARRIVALS):
        for name, files in inputs.items():
            for rows in files:
                scratch.drop_file(name, [*map(_as_json, rows)])
        if kills_in and number == KILLED:
            module = ["tests.conformance.streams.stateful", scratch.lake.uri, str(scratch.landing)]
            points = [f"{stream.name}:after-sink" for stream in streams]
            killed_when(module, kills_in, point=" ".join(points), every=len(points))
        now = streams if number else [before_its_change(stream) for stream in streams]
        reported.append(
            {
                result.stream.stream: {
                    "watermark_ms": result.watermark_ms,
                    "late": result.late.count,
                    "warnings": [*result.warnings],
                }
                for result in _good(scratch.run_all(now))
            }
        )
    return reported


RUNS = {"observing": observing_runs, "stateful": stateful_runs}


def on_a_warm_server(name, folder):
    """Do these runs on a warm server, and return what they return."""
    command = [sys.executable, "-m", "tests.conformance.streams.runs", name, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "returned.json").read_text())


def main() -> None:
    """The runs on a warm server."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    engine = SparkEngine(settings(folder, idle_timeout=timedelta(seconds=20)))
    returned = RUNS[name](scratch_in(folder, engine))
    engine.stop()
    (folder / "returned.json").write_text(json.dumps(returned))


def _good(results):
    assert [str(result.error) for result in results if result.error] == []
    return results


def _as_json(row):
    """A row whose times are strings."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}


if __name__ == "__main__":
    main()

"""Two runs at once: of one stream the second is refused, of disjoint streams both work."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.run.fault_streams import shop
from tests.run.test_faults import ORDERS, PAYMENTS, Child
from tidemill.testing import multiset

CONFIG = """
pipelines = ["tests.run.fault_streams:PIPELINE"]
[targets.dev]
lake = "{lake}"
landing = "{landing}"
"""
# The command, and then whether it has loaded Dagster or started anything.
COMMAND = """
import sys, psutil
from tidemill.cli import main
try:
    main()
finally:
    print("dagster" in sys.modules, len(psutil.Process().children()), file=sys.stderr)
"""


def tidemill(scratch, tmp_path, *arguments):
    config = tmp_path / "tidemill.toml"
    config.write_text(CONFIG.format(lake=scratch.lake.uri, landing=scratch.landing))
    started = time.monotonic()
    done = subprocess.run(  # noqa: PLW1510 - the status is what is tested
        [sys.executable, "-c", COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"TIDEMILL_CONFIG": str(config)},
    )
    return done, time.monotonic() - started


def test_two_runs_at_once(scratch, tmp_path):
    made = shop()
    scratch.arrive(made["orders"], "events", ORDERS[0])
    scratch.arrive(made["payments"], "events", PAYMENTS[0])
    child = Child(scratch, ["orders"], tmp_path, TIDEMILL_PAUSE_AT="shop/orders:before-batch")
    deadline = time.monotonic() + 150
    while not child.marker.exists():
        assert time.monotonic() < deadline, child.log.read_text()
        time.sleep(0.05)
    try:
        before = sorted(Path(scratch.lake.uri).rglob("*"))
        done, _ = tidemill(scratch, tmp_path, "run", "shop/orders", "--json")
        assert done.returncode == 0, "another run does the work"
        [stream] = json.loads(done.stdout)["streams"]
        assert stream["outcome"] == "busy"
        assert stream["error"] is None
        assert f"process {child.process.pid} on" in stream["reason"]
        assert stream["seconds"] < 1
        assert sorted(Path(scratch.lake.uri).rglob("*")) == before
        scratch.run(made["payments"])
        assert scratch.rows(made["payments"], "order_id") == multiset((p["order_id"],) for p in PAYMENTS[0])
    finally:
        os.killpg(child.process.pid, signal.SIGKILL)
        child.process.wait()


def test_nothing_new_takes_no_jvm_and_no_dagster(scratch, tmp_path):
    made = shop()
    names = ("orders", "windows", "totals")  # a feed, Spark's own sink, a merge
    scratch.arrive(made["orders"], "events", ORDERS[0])
    scratch.run_all([made[name] for name in names])
    for command in ("run", "status"):
        done, _ = tidemill(scratch, tmp_path, command, *(f"shop/{name}" for name in names), "--json")
        assert done.returncode == 0, done.stderr
        assert done.stderr.split() == ["False", "0"], "Dagster was loaded, or a process started"
        states = {stream.get("outcome", stream.get("state")) for stream in json.loads(done.stdout)["streams"]}
        assert states == {"idle"}

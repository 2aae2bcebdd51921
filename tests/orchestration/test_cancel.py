"""Terminate, for real: a run in a process of its own, in the middle of a Spark task, gets the signal."""

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from dagster import AssetKey, DagsterInstance, DagsterRunStatus

from tests.support.small import small_target
from tidemill.storage.lake import Lake
from tidemill.text.names import StreamName

pytestmark = pytest.mark.jvm

ROOT = Path(__file__).parents[2]
SLOW = StreamName("case", "slow")
PIPELINE = '''
from pyspark.sql import functions as F
from tidemill import DeltaAppend, Feed, Pipeline, Json

case = Pipeline("case")

@case.stream(source=Feed("numbers", Json("n INT")), sink=DeltaAppend())
def slow(events):
    """Every number, after a minute."""
    return events.withColumn("slept", F.expr("java_method('java.lang.Thread', 'sleep', 60000L)"))
'''


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    (tmp_path / "slow_case.py").write_text(PIPELINE)
    (tmp_path / "tidemill.toml").write_text(small_target("slow_case:case"))
    (tmp_path / "landing" / "numbers").mkdir(parents=True)
    (tmp_path / "landing" / "numbers" / "a.json").write_text('{"n": 1}\n')
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster" / "dagster.yaml").symlink_to(ROOT / "resources" / "dagster" / "dagster.yaml")
    monkeypatch.setenv("TIDEMILL_CONFIG", str(tmp_path / "tidemill.toml"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    return tmp_path


def wait_for(reached, process: subprocess.Popen, log: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, log.read_text()
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(f"The run ended too early.\n{log.read_text()}")


def jvms(process: subprocess.Popen) -> list[psutil.Process]:
    """Spark's JVM, or the script that is about to become it."""
    processes = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):
            if "pyspark-shell" in child.cmdline():
                processes.append(child)
    return processes


AFTER = {
    "the start of Spark began": lambda _lake, process: jvms(process),
    "its batch began": lambda lake, _process: (
        Path(lake.checkpoint(SLOW, 1).uri()) / "offsets" / "0"
    ).exists(),
}


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("sent", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.campaign)])
def test_a_terminated_run_stops_its_query_releases_its_lease_and_is_canceled_within_5_s(home, sent, after):
    lake, log = Lake.at(home / "lake"), home / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("dg")), "launch", "--assets", str(SLOW)],
            cwd=ROOT,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_for(lambda: AFTER[after](lake, process), process, log, 120)
            children = psutil.Process(process.pid).children(recursive=True)
            # While the script becomes the JVM, its command line is neither's.
            wait_for(lambda: jvms(process), process, log, 30)
            signaled = time.time()
            process.send_signal(sent)
            process.wait(30)
            ended = time.time()
        finally:
            process.kill()
            process.wait(30)

    with DagsterInstance.from_config(str(home / "dagster")) as instance:
        (run,) = instance.get_runs()
        assert run.status == DagsterRunStatus.CANCELED, log.read_text()
        assert instance.get_run_stats(run.run_id).end_time - signaled < 5
        assert ended - signaled < 15  # Dagster takes its time to leave, on a busy machine
        assert instance.get_latest_materialization_event(AssetKey(["case", "slow"])) is None
    (lease,) = (Path(lake.records(SLOW).uri()) / "lease").glob("*.json")
    assert json.loads(lease.read_text())["released"] is True
    assert not (Path(lake.checkpoint(SLOW, 1).uri()) / "commits" / "0").exists()
    assert not psutil.wait_procs(children, timeout=10)[1]

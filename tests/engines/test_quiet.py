"""What a person sees of real runs on stderr: a line per stream, and nothing of Spark's own noise."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.small import small_target

pytestmark = pytest.mark.jvm

# `wrong` fails in the analysis; `slow` waits in a batch function, where an interrupt meets Python and the JVM.
PIPELINE = """
import time
from pathlib import Path
from tidemill import DeltaAppend, DeltaMerge, Feed, Pipeline, Json

case = Pipeline("case")

@case.stream(source=Feed("numbers", Json("n INT"), rules={"known": "n IS NOT NULL"}), sink=DeltaAppend())
def fine(events):
    return events

@case.stream(source=fine, sink=DeltaAppend())
def wrong(rows):
    return rows.select("no_such_column")

@case.stream(source=fine, sink=DeltaAppend())
def stateful(rows):
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Echo(StatefulProcessor):
        def init(self, handle):
            pass

        def handleInputRows(self, key, rows, timerValues):
            return rows

        def close(self):
            pass

    return rows.select("n").groupBy("n").transformWithState(Echo(), "n INT", "Append", "None")

@case.stream(source=fine, sink=DeltaMerge(keys=["n"], sequence_by="n"))
def slow(rows):
    return rows.select("n").mapInPandas(wait, "n INT")

def wait(batches):
    for batch in batches:
        Path("reached").touch()
        time.sleep(600)
        yield batch
"""
FOR_START = 240


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("quiet")
    (root / "quiet_case.py").write_text(PIPELINE)
    (root / "tidemill.toml").write_text(small_target("quiet_case:case"))
    (root / "landing" / "numbers").mkdir(parents=True)
    (root / "landing" / "numbers" / "1.json").write_text('{"n": 1}\n')
    return root


@pytest.fixture(scope="module")
def ended(project) -> subprocess.CompletedProcess[str]:
    """A run with streams that succeed, one of them with a Python worker, and one that fails in the analysis."""
    return subprocess.run(
        [tidemill(), "run", "case/fine", "case/stateful", "case/wrong"],
        cwd=project,
        env=environment(project),
        capture_output=True,
        text=True,
        check=False,
    )


def tidemill() -> str:
    return str(Path(sys.executable).with_name("tidemill"))


def environment(project: Path) -> dict[str, str]:
    return os.environ | {"TIDEMILL_CONFIG": str(project / "tidemill.toml")}


def test_a_run_prints_a_line_per_stream_and_nothing_else(ended):
    assert ended.returncode == 1
    progress = ": batch "  # a run that takes ten seconds or more says where it is
    lines = [line for line in ended.stderr.strip().split("\n") if progress not in line]
    assert sorted(line.split()[:2] for line in lines) == [
        ["failed", "case/wrong"],
        ["updated", "case/fine"],
        ["updated", "case/stateful"],
    ]
    assert "no_such_column" in next(line for line in lines if "case/wrong" in line)


@pytest.mark.campaign
def test_an_interrupt_of_a_batch_function_prints_no_stack(project, ended, tmp_path):
    assert ended.returncode == 1
    with (tmp_path / "err").open("w") as stderr:
        run = subprocess.Popen(
            [tidemill(), "run", "case/slow"], cwd=project, env=environment(project), stderr=stderr
        )
    try:
        deadline = time.monotonic() + FOR_START
        while not (project / "reached").exists():
            assert run.poll() is None, (tmp_path / "err").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 130
    finally:
        run.kill()
        run.wait()
    lines = (tmp_path / "err").read_text().strip().splitlines()
    assert [line.split()[:2] for line in lines[:-1]] == [["canceled", "case/slow"]]
    assert "No data was lost" in lines[-1]

"""Ctrl-C and SIGTERM of `tidemill run`, for real: seconds, a result per stream, and a next run that continues."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support.small import small_target
from tidemill.cli.shared.interrupt import interruptible
from tidemill.records.lease import holder_of
from tidemill.records.stream_records import StreamRecords
from tidemill.run.execute.pipeline_run import PipelineRun
from tidemill.storage.lake import Lake
from tidemill.target.resolve import resolve
from tidemill.testing import multiset
from tidemill.text.names import StreamName

pytestmark = pytest.mark.jvm

SLOW, AFTER = StreamName("case", "slow"), StreamName("case", "after")
# The first file is taken at once; the batch of the second sleeps as long as the environment says.
PIPELINE = """
import os
from pyspark.sql import functions as F
from tidemill import DeltaAppend, Feed, Pipeline, Json

case = Pipeline("case")
sleep = f"java_method('java.lang.Thread', 'sleep', {os.environ.get('TEST_SLEEP', '0')}L)"

@case.stream(source=Feed("numbers", Json("n INT"), max_files_per_batch=1), sink=DeltaAppend())
def slow(events):
    return events.withColumn("slept", F.expr(f"CASE WHEN n = 2 THEN {sleep} END"))

@case.stream(source=slow, sink=DeltaAppend())
def after(slow):
    return slow.select("n")
"""
# On a busy machine a JVM takes long to start and to come to its first batch.
FOR_START = 240


@dataclass(frozen=True)
class Project:
    root: Path

    @property
    def lake(self) -> Lake:
        return Lake.at(self.root / "lake")

    def interrupted(
        self, reached, *flags: str, sent: int = signal.SIGINT, milliseconds: int = 600_000
    ) -> "Interrupted":
        """`tidemill run`, interrupted by a signal when the condition holds.

        Args:
            reached: The condition.
            flags: Of the command.
            sent: The signal.
            milliseconds: How long the batch of the second file sleeps.
        """
        out, err = self.root / "out", self.root / "err"  # files: Spark says a lot, and would fill a pipe
        with out.open("w") as stdout, err.open("w") as stderr:
            process = subprocess.Popen(
                [str(Path(sys.executable).with_name("tidemill")), "run", *flags],
                cwd=self.root,
                env=os.environ | {"TEST_SLEEP": str(milliseconds)},
                stdout=stdout,
                stderr=stderr,
            )
        try:
            deadline = time.monotonic() + FOR_START
            while not reached(process):
                assert process.poll() is None, err.read_text()
                assert time.monotonic() < deadline, err.read_text()
                time.sleep(0.05)
            children = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(sent)
            signaled = time.monotonic()
            status = process.wait(30)
            seconds = time.monotonic() - signaled
        finally:
            process.kill()
            process.wait()
        return Interrupted(status, seconds, out.read_text(), err.read_text(), children)


@dataclass(frozen=True)
class Interrupted:
    """How a run ended, how many seconds after its signal, and the processes that it had."""

    status: int
    seconds: float
    out: str
    err: str
    children: list[psutil.Process]


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    (tmp_path / "interrupt_case.py").write_text(PIPELINE)
    (tmp_path / "tidemill.toml").write_text(small_target("interrupt_case:case"))
    landing = tmp_path / "landing" / "numbers"
    landing.mkdir(parents=True)
    for number in (1, 2):
        (landing / f"{number}.json").write_text(f'{{"n": {number}}}\n')
        os.utime(landing / f"{number}.json", (number, number))  # Spark takes the older one first
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("TIDEMILL_CONFIG", str(tmp_path / "tidemill.toml"))
    return Project(tmp_path)


def assert_ended_well(run: Interrupted, project: Project) -> None:
    assert run.status == 130, run.err
    assert run.seconds < 5
    assert "No data was lost; the same command continues" in run.err
    for stream in (SLOW, AFTER):
        assert holder_of(project.lake.records(stream).below("lease")) is None
    assert not psutil.wait_procs(run.children, timeout=10)[1]


def test_while_a_query_runs_and_the_next_run_continues(project, engine):
    def in_second_batch(_process: subprocess.Popen[bytes]) -> bool:
        first = any(line.batch_id == 0 for line in StreamRecords(project.lake, SLOW).ledger.lines())
        return first and (Path(project.lake.checkpoint(SLOW, 1).uri()) / "offsets" / "1").exists()

    run = project.interrupted(in_second_batch, "--json")

    assert_ended_well(run, project)
    streams = json.loads(run.out)["streams"]
    assert [(stream["stream"], stream["outcome"], stream["error"]["type"]) for stream in streams] == [
        ("case/slow", "canceled", "CanceledError"),
        ("case/after", "canceled", "CanceledError"),
    ]
    assert streams[0]["rows_written"] == 1, "the batch that was committed is counted"
    assert not (Path(project.lake.checkpoint(SLOW, 1).uri()) / "commits" / "1").exists()

    target = resolve()
    following = PipelineRun(target.streams(), target=target, engine=engine, run_id="following")
    assert [result.outcome for result in following.iter_results()] == ["updated", "updated"]
    for stream in (SLOW, AFTER):
        rows = engine.new().read.format("delta").load(str(project.lake.table(stream)))
        assert multiset(rows.select("n").collect()) == multiset([(1,), (2,)])


def test_by_sigterm_while_spark_starts(project):
    run = project.interrupted(lambda process: psutil.Process(process.pid).children(), sent=signal.SIGTERM)

    assert_ended_well(run, project)
    reported = [line.split()[:2] for line in run.err.splitlines() if "case/" in line]
    assert reported == [["canceled", "case/slow"], ["canceled", "case/after"]]
    assert not Path(project.lake.checkpoint(SLOW, 1).uri()).exists()


@pytest.mark.campaign
def test_a_run_that_follows_its_sources_ends_after_the_batch_in_progress(project):
    second = project.root / "landing" / "numbers" / "2.json"
    content = second.read_text()
    second.unlink()

    def in_second_batch(_process: subprocess.Popen[bytes]) -> bool:
        if not second.exists() and "Following the sources of 2 streams" in (project.root / "err").read_text():
            second.write_text(content)
        return (Path(project.lake.checkpoint(SLOW, 1).uri()) / "offsets" / "1").exists()

    run = project.interrupted(in_second_batch, "--follow=1s", milliseconds=3000)

    assert run.status == 0, run.err
    assert "Stopping after the batches in progress. Ctrl-C again stops at once." in run.err
    assert (Path(project.lake.checkpoint(SLOW, 1).uri()) / "commits" / "1").exists()
    reported = [line.split()[:4] for line in run.err.splitlines() if "case/" in line]
    assert reported.count(["updated", "case/slow", "1", "read,"]) == 2, "what waited, and what arrived"
    for stream in (SLOW, AFTER):
        assert holder_of(project.lake.records(stream).below("lease")) is None
    table = project.lake.table(SLOW)
    rows = table.dataset(table.open()).to_table().to_pylist()
    assert multiset((row["n"],) for row in rows) == multiset([(1,), (2,)])
    assert not psutil.wait_procs(run.children, timeout=10)[1]


@pytest.fixture
def handlers():
    """Give this process its signals back: after an interrupt, it ignores them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_the_second_signal_stops_at_once():
    asked = []
    with interruptible(first=lambda: asked.append("end")):
        signal.raise_signal(signal.SIGINT)
        assert asked == ["end"]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert asked == ["end"]

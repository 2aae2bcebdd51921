"""Runs on a real warm server: shared, killed with SIGKILL on either side, and still exact."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from tests.run.spark.warm_streams import settings, streams
from tidemill.checkpoint import commit_batches, offset_batches
from tidemill.definitions.columns import DELETED
from tidemill.engines.warm.attachment import attach
from tidemill.engines.warm.stop import stop
from tidemill.engines.warm.wire import running, token_of
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.lake import Lake

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]
FOR_POINT = 300  # seconds until a run is in mid-batch, on a busy machine
ATTACH = """
import sys; from pathlib import Path
from tidemill.engines.warm.attachment import attach
from tests.run.spark.warm_streams import settings
attachment = attach(settings(Path(sys.argv[1])), aborted=lambda: False)
print(attachment.record.pid); attachment.close()
"""


# A run whose process stays when its stream has ended, as that of a run with more streams does.
RUN_AND_WAIT = """
import sys, time; from pathlib import Path
from tests.run.spark.warm_streams import scratch_of, streams
folder = Path(sys.argv[1])
scratch = scratch_of(folder)
(result,) = scratch.run_all([streams(folder)["copied"]])
assert result.error is None, result.error
(folder / "ran").touch()
while (folder / "ran").exists(): time.sleep(0.05)
scratch.engine.stop()
"""


class World:
    """A lake, what arrives in it, and its warm server."""

    def __init__(self, folder):
        self.folder = folder
        self.rows = []
        self.processes = []
        self.home = settings(folder).server
        (folder / "landing").mkdir()

    def start(self, program, *names):
        with (self.folder / f"{time.monotonic_ns()}.out").open("w") as out:
            process = subprocess.Popen(
                [sys.executable, *program, str(self.folder), *names],
                env=os.environ | {"WARM_FOLDER": str(self.folder), "PYTHONPATH": str(self.folder)},
                stdout=out,
                stderr=out,
            )
        self.processes.append(process)
        return process

    def output(self):
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.out")))

    def run(self, *names):
        process = self.start(["-m", "tests.run.spark.warm_streams"], *names)
        assert process.wait(FOR_POINT) == 0, self.output()

    def arrive(self, *rows):
        self.rows += rows
        name = f"{len(self.rows)}.json"
        (self.folder / "landing" / name).write_text(
            "".join(json.dumps({"key": key, "n": n}) + "\n" for key, n in rows)
        )

    def paused(self, name):
        """A run that waits in the middle of a batch."""
        (self.folder / "pause").touch()
        (self.folder / "reached").unlink(missing_ok=True)
        process = self.start(["-m", "tests.run.spark.warm_streams"], name)
        until((self.folder / "reached").exists, self.output)
        assert process.poll() is None, self.output()
        return process

    def waits_no_more(self):
        """Whether the task of a stopped query has ended; Spark kills its Python worker after 2 s."""
        return time.time() - (self.folder / "waits").stat().st_mtime > 3

    def go_on(self):
        (self.folder / "pause").unlink()

    def records(self, name):
        return StreamRecords(Lake.at(self.folder / "lake"), streams(self.folder)[name].name)

    def server(self):
        """The server that lives; another test may have let it end."""
        if running(self.home) is None:
            assert self.start(["-c", ATTACH]).wait(FOR_POINT) == 0, self.output()
        return running(self.home)

    def last_commit(self, name):
        folder = Path(self.records(name).checkpoint(1).uri())
        return max(commit_batches(folder), default=-1) if folder.exists() else -1

    def assert_exact(self, name):
        checkpoint = Path(self.records(name).checkpoint(1).uri())
        assert max(offset_batches(checkpoint)) == max(commit_batches(checkpoint))
        table = DeltaTable(self.records(name).table()).to_pyarrow_table().to_pylist()
        rows = Counter((row["key"], row["n"]) for row in table if not row.get(DELETED))
        expected = self.rows if name == "copied" else {key: (key, n) for key, n in sorted(self.rows)}.values()
        assert rows == Counter(expected)


def until(condition, explain, every=0.02):
    deadline = time.monotonic() + FOR_POINT
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(every)


def queries_of(jvm_pid):
    """The streaming queries that a JVM has in memory, from its list of live objects."""
    jcmd = Path(psutil.Process(jvm_pid).exe()).with_name("jcmd")
    if not jcmd.exists():
        pytest.skip("this Java has no jcmd")
    command = [jcmd, str(jvm_pid), "GC.class_histogram"]
    objects = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [line for line in objects.splitlines() if line.endswith(".MicroBatchExecution")]


def has_ended(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A world whose server was started by two processes at once; at the end it is idle, and ends by itself."""
    world = World(tmp_path_factory.mktemp("warm"))
    two = [world.start(["-c", ATTACH]) for _ in range(2)]
    assert [process.wait(FOR_POINT) for process in two] == [0, 0], world.output()
    world.attached_to = world.output().split()
    yield world
    for process in world.processes:
        process.kill()  # one of a test that failed would wait on
        process.wait()
    record = running(world.home)
    if record is not None:
        stop(world.home, record, force=True)


def test_two_starters_at_once_and_later_runs_share_one_server(world):
    assert len(world.attached_to) == 2
    assert len(set(world.attached_to)) == 1
    record = world.server()
    world.arrive(("a", 1), ("b", 1))
    world.run("copied", "newest")
    assert running(world.home) == record
    world.assert_exact("copied")
    world.assert_exact("newest")


@pytest.mark.campaign
def test_a_run_follows_its_sources_on_a_server(world):
    record = world.server()
    client = world.start(["-m", "tests.run.spark.warm_streams"], "--follow", "copied", "newest")
    for number in range(2):
        before = {name: world.last_commit(name) for name in ("copied", "newest")}
        world.arrive((f"followed-{number}", 1), ("a", 10 + number))
        for name, last in before.items():
            until(lambda name=name, last=last: world.last_commit(name) > last, world.output)
    (world.folder / "end").touch()
    assert client.wait(FOR_POINT) == 0, world.output()
    (world.folder / "end").unlink()
    world.assert_exact("copied")
    world.assert_exact("newest")
    assert running(world.home) == record


@pytest.mark.campaign
def test_a_server_forgets_the_queries_of_runs_that_have_ended(world):
    record = world.server()
    world.arrive(("f", 1))
    client = world.paused("newest")
    assert queries_of(record.jvm_pid)
    world.go_on()
    assert client.wait(FOR_POINT) == 0, world.output()
    # A JVM stops and collects garbage before it lists its objects.
    until(lambda: not queries_of(record.jvm_pid), lambda: queries_of(record.jvm_pid), every=1)
    assert running(world.home) == record


@pytest.mark.campaign
def test_a_server_forgets_the_query_of_a_stream_while_its_run_continues(world):
    record = world.server()
    world.arrive(("g", 1))
    client = world.start(["-c", RUN_AND_WAIT])
    until(lambda: (world.folder / "ran").exists() or client.poll() is not None, world.output)
    until(lambda: not queries_of(record.jvm_pid), lambda: queries_of(record.jvm_pid), every=1)
    assert client.poll() is None, world.output()
    (world.folder / "ran").unlink()
    assert client.wait(FOR_POINT) == 0, world.output()


@pytest.mark.campaign
def test_changed_code_takes_effect_with_the_next_run(world):
    code = world.folder / "edited_code.py"
    for suffix in ("first", "later than that"):
        code.write_text(f"def suffixed(value):\n    return value + {suffix!r}\n")
        world.arrive((suffix, 0))
        world.run("edited")
    table = DeltaTable(world.records("edited").table()).to_pyarrow_table().to_pylist()
    assert {"firstfirst", "later than thatlater than that"} <= {row["key"] for row in table}


@pytest.mark.parametrize("name", ["copied", pytest.param("newest", marks=pytest.mark.campaign)])
def test_a_client_that_was_killed_in_mid_batch(world, name):
    world.arrive(("a", 2), ("c", 2))
    before = world.last_commit(name)
    client = world.paused(name)
    record = running(world.home)
    client.kill()
    client.wait()
    assert Path(world.records(name).checkpoint(1).uri()).joinpath("offsets", str(before + 1)).exists()
    lease = world.records(name).take_lease("next")  # waits until the server has stopped the query
    lease.release()
    until(world.waits_no_more, world.output)
    assert world.last_commit(name) == before
    world.go_on()
    world.run(name)
    world.assert_exact(name)
    assert running(world.home) == record


@pytest.mark.parametrize(
    ("victim", "name"),
    [
        pytest.param("pid", "copied", marks=pytest.mark.campaign),
        pytest.param("jvm_pid", "copied", marks=pytest.mark.campaign),
        pytest.param("pid", "newest", marks=pytest.mark.campaign),
        pytest.param("jvm_pid", "newest", marks=pytest.mark.campaign),
    ],
)
def test_a_server_that_was_killed_in_mid_batch_is_replaced_by_the_run(world, victim, name):
    world.arrive(("b", 3), ("d", 3))
    client = world.paused(name)
    record = running(world.home)
    os.kill(getattr(record, victim), signal.SIGKILL)
    until(lambda: has_ended(record.jvm_pid), world.output)
    world.go_on()
    assert client.wait(FOR_POINT) == 0, world.output()
    world.assert_exact(name)
    assert running(world.home).pid != record.pid


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["copied", "newest"])
def test_a_client_and_its_server_that_were_killed_in_mid_batch(world, name):
    world.arrive(("a", 4), ("e", 4))
    client = world.paused(name)
    record = running(world.home)
    os.kill(record.pid, signal.SIGKILL)
    client.kill()
    client.wait()
    until(lambda: has_ended(record.jvm_pid), world.output)
    world.go_on()
    world.run(name)
    world.assert_exact(name)


@pytest.mark.campaign
def test_a_server_with_other_settings_that_nobody_uses_is_replaced(world):
    record = world.server()
    attachment = attach(settings(world.folder, driver_memory="900m"), aborted=lambda: False)
    try:
        assert attachment.record.pid != record.pid
        assert has_ended(record.jvm_pid)
    finally:
        attachment.close()


def test_the_token_is_on_no_command_line_and_in_no_log(world):
    world.server()
    token = token_of(world.home)
    assert len(token) > 30
    commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if token in command]
    assert token not in world.home.log.read_text()
    assert token not in world.output()
    readable = {
        path for path in world.home.folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o077
    }
    assert not [path for path in readable if not path.is_symlink() and token.encode() in path.read_bytes()]


@pytest.mark.parametrize("parameters", ["", "/;token=wrong"], ids=["none", "wrong"])
def test_a_client_without_the_token_is_refused(world, parameters):
    from pyspark.sql.connect.client import SparkConnectClient

    client = SparkConnectClient(f"sc://localhost:{world.server().spark_port}{parameters}")
    try:
        with pytest.raises(Exception, match="UNAUTHENTICATED"):
            client._analyze(method="spark_version")
    finally:
        client.close()


@pytest.mark.campaign
def test_an_idle_server_ends_by_itself(world):
    short = replace(settings(world.folder), idle_timeout=settings(world.folder).idle_timeout / 3000)
    attachment = attach(short, aborted=lambda: False)
    record = attachment.record  # a server that another test has left may have other settings and be replaced
    attachment.close()
    until(lambda: has_ended(record.pid) and has_ended(record.jvm_pid), world.output)
    assert running(world.home) is None
    assert Path(world.home.log).exists()

"""The warm server without a JVM: its folder, its clients, its idle end, and what an attach compares."""

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.servers.warm import attached, serving
from tests.support.raising import raises
from tests.support.waiting import wait_for
from tidemill.engines.engine import SparkEngine
from tidemill.engines.warm import attachment, launch, stop
from tidemill.engines.warm.settings import described, differences
from tidemill.engines.warm.wire import ServerEndedError, ServerRecord, answer_to, running
from tidemill.target.server_home import ServerHome
from tidemill.target.spark_settings import SparkSettings

LONG = 60.0


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEMILL_CACHE", str(tmp_path / "cache"))
    return ServerHome.of(target="dev", config=tmp_path / "tidemill.toml", lake=str(tmp_path / "lake"))


@pytest.fixture
def served(home):
    with serving(home) as clients:
        yield clients


def eventually(condition):
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_another_lake_target_file_or_host_has_another_server(tmp_path, monkeypatch):
    same = {"target": "dev", "config": tmp_path / "tidemill.toml", "lake": str(tmp_path / "lake")}
    homes = [
        ServerHome.of(**same),
        ServerHome.of(**same | {"target": "prod"}),
        ServerHome.of(**same | {"config": tmp_path / "other" / "tidemill.toml"}),
        ServerHome.of(**same | {"lake": str(tmp_path / "other")}),
    ]
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    homes.append(ServerHome.of(**same))
    assert len({home.folder for home in homes}) == len(homes)


@pytest.mark.usefixtures("served")
def test_only_the_owner_can_read_the_token(home):
    assert stat.S_IMODE(home.token_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.folder.stat().st_mode) == 0o700


def test_a_record_without_a_living_server_is_nothing(home):
    lock = home.lock()
    home.clear()
    record = ServerRecord(
        pid=1, jvm_pid=1, spark_port=1, control_port=1, started_at="before the reboot", settings={}
    )
    record.write(home)
    assert running(home) == record
    os.close(lock)
    assert running(home) is None


def test_a_killed_process_releases_the_lock_at_once(home):
    home.lock()
    code = (
        "import sys; from pathlib import Path; from tidemill.target.server_home import ServerHome\n"
        "home = ServerHome('dev', Path('.'), Path(sys.argv[1])); assert home.lock() is not None\n"
        "print('locked', flush=True); sys.stdin.read()"
    )
    other = replace(home, folder=home.folder / "other")
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(other.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "locked\n"
    assert other.has_server
    assert other.lock() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not other.has_server
    assert other.lock() is not None


def test_a_client_counts_until_its_connection_ends_and_its_queries_have_stopped(home, served):
    answer, connection = attached(home)
    file = Path(answer["attachment"])
    assert file.exists()
    assert [client["pid"] for client in answer_to(home, running(home), "status")["clients"]] == [os.getpid()]
    connection.close()
    eventually(lambda: not served.count)
    assert served.sessions.closed == [answer["client"]]
    assert not file.exists()


def test_the_file_of_a_client_stays_while_its_queries_may_write(home, served):
    served.sessions.failure = TimeoutError("still working")
    answer, connection = attached(home)
    connection.close()
    eventually(lambda: not served.count)
    assert Path(answer["attachment"]).exists()


def test_a_wrong_token_changes_nothing(home, served):
    home.write_private(home.token_file, "wrong")
    refused, connection = attached(home)
    connection.close()
    assert not refused["ok"]
    assert not answer_to(home, running(home), "stop", force=True)["ok"]
    assert not served.count
    assert not served.stopping.is_set()


def test_a_server_ends_when_nobody_has_been_attached_for_its_idle_timeout(home, served):
    served.set_idle_timeout(0.0)
    _, connection = attached(home, idle_timeout=0.0)
    served.stop_when_idle()
    assert not served.stopping.is_set(), "a silent client is attached"
    connection.close()
    eventually(lambda: not served.count)
    served.set_idle_timeout(LONG)
    served.stop_when_idle()
    assert not served.stopping.is_set()
    served.set_idle_timeout(0.0)
    served.stop_when_idle()
    assert served.stopping.is_set()
    refused, connection = attached(home)
    connection.close()
    assert refused == {"ok": False, "reason": "stopping"}


def test_a_stop_is_refused_while_a_run_is_attached_unless_it_is_forced(home, served):
    _, connection = attached(home)
    assert not answer_to(home, running(home), "stop", force=False)["ok"]
    assert not served.stopping.is_set()
    assert answer_to(home, running(home), "stop", force=True)["ok"]
    assert connection.recv(1), "the client knows it, and does not start another server"
    connection.close()
    eventually(lambda: not served.count)
    assert len(served.sessions.closed) == 1


@pytest.mark.usefixtures("served")
def test_a_server_that_does_not_answer_has_ended(home):
    record = replace(running(home), control_port=1)
    with pytest.raises(ServerEndedError):
        answer_to(home, record, "status")


KEY = "spark.hadoop.fs.s3a.secret.key"


def test_settings_and_versions_are_compared_and_secrets_are_not_shown():
    confs = {"spark.driver.memory": "1g", KEY: "old", "spark.x": "1"}
    server = described(confs, "token")
    assert "old" not in str(server)
    assert not differences(server, described(confs, "token"))
    needed = {**described({"spark.driver.memory": "2g", KEY: "new"}, "token"), "pyspark": "9.9"}
    assert [str(difference) for difference in differences(server, needed)] == [
        f"pyspark is {server['pyspark']}, and this run needs 9.9",
        "spark.driver.memory is 1g, and this run needs 2g",
        f"{KEY} has another value",
        "spark.x is 1, and this run needs none",
    ]


def test_a_server_with_other_settings_that_is_in_use_is_refused_with_what_differs(home, served, monkeypatch):
    monkeypatch.setattr(attachment, "FREE_SECONDS", 0.3)
    monkeypatch.setattr(attachment, "server_confs", lambda _: {"spark.driver.memory": "2g"})
    _, connection = attached(home)
    with raises("warm-server-differs", "spark.driver.memory", "2g") as raised:
        attachment.attach(SparkSettings(mode="warm", server=home), aborted=lambda: False)
    assert str(os.getpid()) in raised.value.what
    assert "tidemill engine stop --target dev" in raised.value.fix
    assert not served.stopping.is_set()
    connection.close()


def test_an_attachment_that_was_closed_is_free_when_it_says_so(home, served, monkeypatch):
    monkeypatch.setattr(attachment, "server_confs", lambda _: {})
    server = running(home)
    replace(server, settings=described({}, "token")).write(home)
    ours = attachment.attach(SparkSettings(mode="warm", server=home), aborted=lambda: False)
    assert served.count == 1
    assert ours.file.exists()
    assert "token=token" in ours.address
    ours.close()
    assert ours.ended.wait(LONG)
    assert not ours.was_stopped
    assert not ours.file.exists()
    assert len(served.sessions.closed) == 1


def test_a_server_that_does_not_start_is_reported_with_the_end_of_its_log(home, monkeypatch):
    def fails(home, *_):
        home.folder.joinpath("server.log").write_text("one\nno memory left\n")
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])

    monkeypatch.setattr(launch, "_start", fails)
    with raises("warm-server-not-started", "status 3", "no memory left"):
        launch.ready_server(home, {}, idle_timeout=LONG, aborted=lambda: False)
    assert not home.has_server


@pytest.fixture
def jvm():
    """A process that counts as the JVM of a server."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", "pyspark-shell"], stdin=subprocess.PIPE
    )
    # A process that has just been started has no command line for a moment.
    wait_for(lambda: "pyspark-shell" in psutil.Process(process.pid).cmdline(), 60)
    yield process
    process.kill()
    process.communicate()


def test_no_server_starts_while_the_jvm_of_one_that_was_killed_may_be_writing(home, jvm, monkeypatch):
    os.close(home.lock())
    record = ServerRecord(pid=1, jvm_pid=jvm.pid, spark_port=1, control_port=1, started_at="", settings={})
    record.write(home)
    started = []

    def start(*arguments):
        started.append(arguments)
        return SimpleNamespace(poll=lambda: 1, returncode=1)

    monkeypatch.setattr(launch, "_start", start)
    polls = iter((False, False, True))
    with raises("warm-server-not-started"):
        launch.ready_server(home, {}, idle_timeout=1, aborted=lambda: next(polls))
    assert not started
    jvm.kill()
    jvm.communicate()
    with raises("warm-server-not-started", "status 1"):
        launch.ready_server(home, {}, idle_timeout=1, aborted=lambda: False)
    assert started


def test_a_server_is_that_of_a_target():
    with raises("warm-without-target"):
        attachment.attach(SparkSettings(mode="warm"), aborted=lambda: False)


def test_a_server_that_ends_whenever_a_run_attaches_is_reported_after_several_attempts(
    home, served, monkeypatch
):
    monkeypatch.setattr(attachment, "server_confs", lambda _: {})
    replace(running(home), settings=described({}, "token")).write(home)
    served.stopping.set()  # it ends, and takes nobody any more
    with raises("warm-server-ended") as raised:
        attachment.attach(SparkSettings(mode="warm", server=home), aborted=lambda: False)
    assert raised.value.transient
    assert not served.count


@pytest.mark.usefixtures("served")
def test_a_run_whose_server_somebody_stops_starts_no_other_one(home, monkeypatch):
    monkeypatch.setattr(attachment, "server_confs", lambda _: {})
    monkeypatch.setattr(SparkEngine, "_connect", lambda _: SimpleNamespace())
    replace(running(home), settings=described({}, "token")).write(home)
    engine = SparkEngine(SparkSettings(mode="warm", server=home))
    session = engine.root()
    assert engine.root() is session
    assert answer_to(home, running(home), "stop", force=True)["ok"]
    assert engine._attachment.ended.wait(LONG)
    with raises("warm-server-stopped"):
        engine.root()


def test_a_server_that_does_not_end_is_named_with_its_processes(home, jvm, monkeypatch):
    os.close(home.lock())
    record = ServerRecord(pid=1, jvm_pid=jvm.pid, spark_port=1, control_port=1, started_at="", settings={})
    monkeypatch.setattr(stop, "END_SECONDS", 0.2)
    with raises("warm-server-not-stopped", "target 'dev'", f"kill 1 {jvm.pid}") as raised:
        stop.wait_until_ended(home, record)
    assert raised.value.transient
    jvm.kill()
    jvm.communicate()
    stop.wait_until_ended(home, record)

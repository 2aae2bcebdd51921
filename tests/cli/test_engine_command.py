"""`tidemill engine` on a server without Spark."""

import json
import os

import pytest
from typer.testing import CliRunner

from tests.servers.warm import attached, serving
from tests.support.raising import raises
from tidemill import cli
from tidemill.target.resolve import resolve


@pytest.fixture
def target(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tidemill.toml").write_text('[targets.dev.spark]\nmode = "warm"\n')
    return resolve()


@pytest.fixture
def command(monkeypatch, capsys):
    """Run `tidemill engine`; return its status, its output and its errors."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["tidemill", "engine", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    return run


def test_status_shows_the_attached_processes(target, command):
    assert command("status") == (0, "The server of target dev is not running.\n", "")
    with serving(target.server):
        assert "Nobody is attached." in command("status")[1]
        _, connection = attached(target.server)
        with connection:
            assert f"process {os.getpid()} since" in command("status")[1]
            server = json.loads(command("status", "--json")[1])["server"]
            assert [client["pid"] for client in server["clients"]] == [os.getpid()]


def test_a_server_that_does_not_answer_is_a_problem(target, command):
    with serving(target.server):
        record = json.loads(target.server.record_file.read_text())
        target.server.record_file.write_text(json.dumps(record | {"control_port": 1}))
        status, output, _ = command("status")
        assert status == 1
        assert "Fix: tidemill engine stop --target dev" in output


def test_stop_names_the_attached_processes_and_needs_yes_without_a_terminal(target, command):
    assert command("stop") == (0, "Target dev has no server.\n", "")
    with serving(target.server) as clients:
        _, connection = attached(target.server)
        with connection:
            status, _, errors = command("stop")
            assert status == 2
            assert f"process {os.getpid()} since" in errors
            assert not clients.stopping.is_set()
            assert command("stop", "--yes")[0] == 0
            assert clients.stopping.is_set()


def test_start_is_refused_for_another_mode(tmp_path, target, command):
    (tmp_path / "tidemill.toml").write_text('[targets.dev.spark]\nmode = "local"\n')
    with raises("spark-mode-not-warm", "target 'dev'", 'mode = "warm"') as raised:
        CliRunner().invoke(cli.app, ["engine", "start"], catch_exceptions=False)
    status, _, errors = command("start")
    assert status == 2
    assert str(raised.value) in errors
    assert not target.server.folder.exists()


def test_logs_prints_the_end_of_the_log(target, command):
    assert command("logs")[0] == 1
    target.server.folder.mkdir(parents=True)
    target.server.log.write_text("one\ntwo\nthree\n")
    assert command("logs", "--lines", "2") == (0, "two\nthree\n", "")


def test_debug_shows_the_server(target):
    from tidemill.cli.machine.debug import ping_spark

    assert ping_spark(target).ok is None
    with serving(target.server):
        ping = ping_spark(target)
        assert ping.ok
        assert f"process {os.getpid()}" in ping.detail

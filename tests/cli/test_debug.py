"""`tidemill debug`: what was resolved, from where, and what answers; never a secret."""

import json
import socket
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tests.orchestration.shop import Shop
from tests.servers.postgres import PASSWORD, VARIABLE
from tidemill.cli.machine import debug
from tidemill.connectors.kafka import client as cluster
from tidemill.storage.lake import Lake
from tidemill.storage.local_store import LocalStore
from tidemill.target.resolve import ResolvedTarget
from tidemill.target.spark_settings import SparkSettings


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return Shop.make(tmp_path, monkeypatch)


def run(*arguments: str):
    return CliRunner().invoke(debug.app, list(arguments))


def pings(result) -> dict[str, dict]:
    return {ping["name"]: ping for ping in json.loads(result.stdout)["pings"]}


def target(tmp_path, **spark) -> ResolvedTarget:
    return ResolvedTarget(
        name="t", lake=Lake.at(tmp_path), spark=SparkSettings(**spark), config=tmp_path / "tidemill.toml"
    )


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


def test_settings_have_their_origin(shop):
    document = json.loads(run("--json", "--lake", str(shop.root / "other")).stdout)

    settings = {entry["name"]: (entry["value"], entry["origin"]) for entry in document["settings"]}
    assert settings["target"] == ("dev", "default")
    assert settings["lake"] == (str(shop.root / "other"), "flag --lake")
    assert settings["feeds"] == (str(shop.root / "landing/<feed>"), "tidemill.toml [targets.dev]")


def test_everything_that_a_run_needs_is_pinged(shop):
    answers = pings(run("--json"))

    assert set(answers) == {"pipelines", "java", "jars", "spark", "lake", "dagster"}
    assert answers["pipelines"]["detail"] == "2 streams"
    assert answers["lake"] == {"name": "lake", "ok": True, "detail": f"{shop.root}/lake will be created"}
    assert answers["dagster"]["ok"] is None


@pytest.mark.usefixtures("shop")
def test_a_broker_that_is_down_fails_the_command(closed_port, monkeypatch):
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 0.5)
    result = run("--json", "--kafka", f"127.0.0.1:{closed_port}")

    assert result.exit_code == 1
    assert pings(result)["kafka.default"]["ok"] is False
    assert "does not answer" in pings(result)["kafka.default"]["detail"]


def test_a_pipeline_that_cannot_be_imported_is_a_ping_and_no_crash(shop):
    config = shop.root / "tidemill.toml"
    config.write_text('pipelines = ["not_there:shop"]', encoding="utf-8")

    result = run()

    assert result.exit_code == 1
    assert "no module 'not_there'" in " ".join(result.stdout.split())


def test_a_lake_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()

    assert debug.ping_lake(LocalStore(tmp_path / "lake")).ok
    assert debug.ping_lake(LocalStore(tmp_path / "file" / "lake")).ok is False


def test_a_connect_server(tmp_path, closed_port):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        up = target(
            tmp_path, mode="connect", remote=f"sc://127.0.0.1:{server.getsockname()[1]}/;token=secret"
        )
        assert debug.ping_spark(up).ok
    down = target(tmp_path, mode="connect", remote=f"sc://127.0.0.1:{closed_port}/;token=secret")

    assert debug.ping_spark(down).ok is False
    assert "secret" not in debug.ping_spark(down).detail
    assert debug.ping_java(down).ok is None


def test_a_database_that_answers_and_one_that_refuses(tmp_path, postgres, monkeypatch):
    databases = {"warehouse": postgres.database, "down": replace(postgres.database, port=1)}
    of_databases = replace(target(tmp_path), databases=databases)
    monkeypatch.setenv(VARIABLE, PASSWORD)
    up, down = (debug.ping_postgres(of_databases, name) for name in databases)
    assert (up.name, up.ok) == ("postgres.warehouse", True)
    assert f"127.0.0.1:{postgres.port}/postgres answers, Postgres 1" in up.detail
    assert (down.name, down.ok) == ("postgres.down", False)
    assert "does not answer" in down.detail
    monkeypatch.setenv(VARIABLE, "another-pass")
    refused = debug.ping_postgres(of_databases, "warehouse")
    assert refused.ok is False
    assert "authentication failed" in refused.detail
    assert "another-pass" not in refused.detail
    monkeypatch.delenv(VARIABLE)
    assert VARIABLE in debug.ping_postgres(of_databases, "warehouse").detail
    assert len(debug._pings(of_databases)) == len(debug._pings(target(tmp_path))) + 2


def test_a_dagster_instance(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "missing"))
    assert debug.ping_dagster(target(tmp_path)).ok is False

    (tmp_path / "home").mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    assert debug.ping_dagster(target(tmp_path)).detail.endswith("0 runs")

"""`tidemill status`: every state, from what runs leave in a lake, without a JVM."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tests.orchestration.shop import ORDERS, Shop
from tests.support.leases import held
from tidemill.cli.run.status import app


@pytest.fixture
def shop(tmp_path, monkeypatch):
    return Shop.make(tmp_path, monkeypatch)


NOTHING = {"files": 0, "messages": 0, "versions": 0, "rows": None, "bytes": None, "oldest_at": None}


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def status(*arguments: str) -> dict:
    """`status --json` of `shop/orders`."""
    document = json.loads(run("shop/orders", "--json", *arguments).stdout)
    (stream,) = document["streams"]
    return stream


def test_a_stream_that_has_never_run(shop):
    shop.land("a.json")

    stream = status()
    assert stream["backlog"].pop("oldest_at")
    assert stream == {
        "stream": "shop/orders",
        "state": "never_run",
        "reason": "",
        "backlog": {"files": 1, "messages": 0, "versions": 0, "rows": None, "bytes": 9},
        "running_batch": None,
        "watermark": None,
        "last_batch": None,
        "last_run_at": None,
        "generation": None,
        "state_rows": None,
        "warnings": [],
        "polls": [],
        "sinks": [],
        "catalog": [],
    }


def test_an_idle_stream(shop):
    shop.has_run("a.json", "b.json")

    stream = status()

    assert stream.pop("last_run_at")
    assert stream == {
        "stream": "shop/orders",
        "state": "idle",
        "reason": "",
        "backlog": NOTHING,
        "running_batch": None,
        "watermark": "1970-01-01T00:01:00.000+00:00",
        "last_batch": 0,
        "generation": 1,
        "state_rows": 7,
        "warnings": [],
        "polls": [],
        "sinks": [],
        "catalog": [],
    }


def test_a_stream_that_is_behind(shop):
    shop.has_run("a.json")
    shop.land("b.json", "c.json")

    assert (status()["state"], status()["backlog"]["files"]) == ("behind", 2)
    assert status()["backlog"]["bytes"] == 18
    assert status()["backlog"]["oldest_at"]
    assert status()["reason"] == "2 files in events"


def test_a_batch_that_was_killed_is_behind_without_new_input(shop):
    checkpoint = shop.has_run("a.json")
    (checkpoint / "commits/0").unlink()

    assert (status()["state"], status()["backlog"]) == ("behind", NOTHING)


def test_a_running_stream(shop):
    shop.has_run("a.json")

    with held(shop.target.lake.records(ORDERS).below("lease"), ORDERS, "run-2"):
        assert status()["state"] == "running"
        assert "run run-2 (process" in status()["reason"]
        assert status()["running_batch"] is None
    assert status()["state"] == "idle"


def test_the_batch_that_is_running_is_shown(shop):
    checkpoint = shop.has_run("a.json")
    offsets = (checkpoint / "offsets/0").read_text(encoding="utf-8")
    (checkpoint / "offsets/1").write_text(offsets, encoding="utf-8")

    with held(shop.target.lake.records(ORDERS).below("lease"), ORDERS, "run-2"):
        assert (status()["state"], status()["running_batch"]) == ("running", 1)
        assert "1 runs" in run("shop/orders").stdout


def test_a_failed_stream_reports_why_and_exits_1(shop):
    shop.has_run("a.json", failed="the broker was moved.")

    result = run("shop/orders")

    assert result.exit_code == 1
    message = " ".join(result.stderr.split())
    assert "shop/orders: the broker was moved." in message
    assert message.count("shop/orders") == 1
    assert status()["state"] == "failed"


def test_a_damaged_checkpoint_is_corrupt(shop):
    checkpoint = shop.has_run("a.json")
    (checkpoint / "offsets/0").write_text("", encoding="utf-8")

    result = run("shop/orders", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["streams"][0]["state"] == "corrupt"
    assert "offsets/0" in result.stderr


def test_a_missing_checkpoint_is_corrupt(shop):
    checkpoint = shop.has_run("a.json")
    checkpoint.rename(checkpoint.with_name("moved"))

    assert (status()["state"], status()["backlog"]) == ("corrupt", None)


def test_a_source_that_cannot_be_read(shop):
    (shop.root / "landing/orders").rmdir()
    result = run("shop/orders", "--json")
    assert result.exit_code == 0
    assert "mkdir -p" in result.stderr
    assert (status()["state"], status()["backlog"]) == ("never_run", None)


def test_the_table_for_people(shop):
    shop.has_run("a.json")

    result = run()

    assert result.exit_code == 0
    rows = [line.split()[:2] for line in result.stdout.splitlines() if line.startswith("shop/")]
    assert rows == [["shop/orders", "idle"], ["shop/unique", "never_run"]]


def test_neither_spark_nor_dagster_is_started(shop):
    shop.has_run("a.json")
    code = (
        "import sys; from tidemill.run.decide.status import status_of\n"
        "from tidemill.target.resolve import resolve\n"
        "target = resolve(); states = [status_of(stream, target).state for stream in target.streams()]\n"
        "heavy = {'dagster', 'py4j', 'confluent_kafka', 'pyspark'} & set(sys.modules)\n"
        "print(states, sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "['idle', 'never_run'] []"

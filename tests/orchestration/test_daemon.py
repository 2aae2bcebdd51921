"""A real webserver and daemon: events in a folder and in a topic lead to runs that move what should move."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from dagster import AssetKey, DagsterInstance, DagsterRunStatus

from tests.small import small_target

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.kafka, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PIPELINE = '''
from pipelines.streaming import DeltaAppend, Feed, Pipeline, from_json

shop = Pipeline("shop")


@shop.stream(source=Feed("orders", from_json("n INT")), sink=DeltaAppend())
def orders(events):
    """Every order."""
    return events


@shop.stream(source=orders, sink=DeltaAppend())
def copied_orders(rows):
    """The orders again."""
    return rows


@shop.stream(source=Feed("clicks", from_json("n INT")), sink=DeltaAppend())
def clicks(events):
    """Every click."""
    return events


@shop.stream(source=clicks, sink=DeltaAppend())
def copied_clicks(rows):
    """The clicks again."""
    return rows
'''
ORDERS = {AssetKey(["shop", name]) for name in ("orders", "copied_orders")}
CLICKS = {AssetKey(["shop", name]) for name in ("clicks", "copied_clicks")}
DAGSTER_YAML = """
telemetry: {enabled: false}
sensors: {use_threads: true, num_workers: 2}
"""
TWO_TICKS = 2 * 30
FOR_RUN = 240  # a run of four streams with a JVM of its own, on a busy machine


@pytest.fixture
def project(tmp_path, broker):
    """A project on a folder and a topic, whose sensor runs as soon as the code location is loaded."""
    broker.create_topic("clicks")
    (tmp_path / "daemon_shop.py").write_text(PIPELINE)
    settings = small_target("daemon_shop:shop").replace("[targets.dev]", "[targets.dev]\nautomation = true")
    settings += f'\n[targets.dev.kafka.default]\nbootstrap = "{broker.bootstrap}"\n'
    settings += '\n[targets.dev.feeds]\nclicks = { topic = "clicks" }\n'
    (tmp_path / "tidemill.toml").write_text(settings)
    (tmp_path / "landing" / "orders").mkdir(parents=True)
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text(DAGSTER_YAML)
    return tmp_path


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@pytest.fixture
def dagster(project):
    """`dagster dev` in a process group of its own: a webserver, a daemon and a code server."""
    environment = os.environ | {
        "DAGSTER_HOME": str(project / "dagster"),
        "TIDEMILL_CONFIG": str(project / "tidemill.toml"),
        "PYTHONPATH": f"{ROOT}:{project}",
    }
    command = [str(Path(sys.executable).with_name("dagster")), "dev", "-m", "orchestration.definitions"]
    log = project / "dagster.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, "-h", "127.0.0.1", "-p", str(free_port())],
            cwd=ROOT,
            env=environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    yield log
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(condition, seconds, log):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.5)
    return value


def test_events_lead_to_runs_that_move_what_should_move_and_nothing_else(project, broker, dagster):
    with DagsterInstance.from_config(str(project / "dagster")) as instance:

        def finished(number):
            runs = instance.get_runs()
            done = [run for run in runs if run.status == DagsterRunStatus.SUCCESS]
            failed = [run for run in runs if run.status == DagsterRunStatus.FAILURE]
            assert not failed, dagster.read_text()[-4000:]
            return runs if len(done) == len(runs) == number else None

        def requested(number):
            return len(instance.get_runs()) == number

        first = wait_for(lambda: finished(2), TWO_TICKS + FOR_RUN, dagster)
        assert {frozenset(run.asset_selection) for run in first} == {frozenset(ORDERS), frozenset(CLICKS)}
        assert {run.tags["tidemill/cause"] for run in first} == {"backlog"}

        (project / "landing" / "orders" / "a.json").write_text('{"n": 1}\n{"n": 2}\n')
        # `at_most_every` is a minute, after which two ticks are enough.
        wait_for(lambda: requested(3), 60 + TWO_TICKS, dagster)
        second = wait_for(lambda: finished(3), FOR_RUN, dagster)[0]
        assert set(second.asset_selection) == ORDERS

        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("clicks", '{"n": 3}')
        producer.flush(20)
        wait_for(lambda: requested(4), 60 + TWO_TICKS, dagster)
        third = wait_for(lambda: finished(4), FOR_RUN, dagster)[0]
        assert set(third.asset_selection) == CLICKS

        materialized = Counter(
            key.to_user_string()
            for key in ORDERS | CLICKS
            for _ in instance.fetch_materializations(key, limit=20).records
        )
        rows = {name: len(table_rows(project, name)) for name in ("copied_orders", "copied_clicks")}
    assert rows == {"copied_orders": 2, "copied_clicks": 1}
    assert set(materialized) == {key.to_user_string() for key in ORDERS | CLICKS}


def table_rows(project, stream):
    from deltalake import DeltaTable

    return DeltaTable(str(project / "lake" / "tables" / "shop" / stream)).to_pyarrow_table().to_pylist()

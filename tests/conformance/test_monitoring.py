"""Rows of the table: monitoring, and the defaults of a query."""

import subprocess
import sys
import time
from datetime import timedelta

import pytest

from tests.conformance.monitored import project
from tests.conformance.observing import streams
from tests.conformance.observing_oracle import FIRST_RUN, RUNS, batches, records
from tests.run.warm_streams import settings
from tidemill.engines.engine import SparkEngine
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.lake import Lake
from tidemill.testing import Scratch

pytestmark = [pytest.mark.jvm, pytest.mark.campaign, pytest.mark.timeout(1200)]


@pytest.fixture
def warm(tmp_path):
    engine = SparkEngine(settings(tmp_path, idle_timeout=timedelta(seconds=20)))
    yield Scratch(lake=Lake.at(tmp_path / "warm"), landing=tmp_path / "landing", engine=engine)
    engine.stop()


@pytest.mark.parametrize("where", ["scratch", "warm"], ids=["local", "warm"])
def test_mon_observe(where, request):
    scratch = request.getfixturevalue(where)
    shop = streams(scratch.landing)
    for number, run in enumerate(RUNS):
        for views in run:
            scratch.drop_file("views", records(views))
        results = scratch.run_all(shop)
        assert [result.error for result in results if result.error] == []
        if number == 0:
            assert {result.stream.stream: result.observed for result in results} == FIRST_RUN
    for stream in shop:
        lines = StreamRecords(scratch.lake, stream.name).ledger.lines()
        observed = [line.observed for line in sorted(lines, key=lambda line: line.batch_id)]
        assert observed == batches()[stream.name.stream], stream.name


EVENTS = {
    "shop/mon_listener": ["started", "progress 0", "progress 1", "failed"],
    "shop/mon_metrics": ["started", "progress 0", "progress 1", "progress 2", "terminated"],
}
# As a run of Dagster whose process is the only one that its container waits for.
RUN_AND_KILL = """
import os, signal
from tidemill.engines.engine import SparkEngine
from tidemill.run.execute.pipeline_run import PipelineRun
from tidemill.run.spark.classic import jvm_pid
from tidemill.target.resolve import resolve
target = resolve()
engine = SparkEngine(target.spark)
list(PipelineRun(target.streams(), target=target, engine=engine, run_id="run").iter_results())
engine.drain()
os.kill(jvm_pid(engine.root()), signal.SIGKILL)
os._exit(0)
"""


@pytest.fixture(scope="module")
def monitored(tmp_path_factory):
    """A project after a run by the command, and the results of its streams."""
    monitored = project(tmp_path_factory.mktemp("monitored"))
    return monitored, {stream["stream"]: stream["outcome"] for stream in monitored.run()["streams"]}


def test_mon_listener(monitored):
    project, outcomes = monitored
    assert outcomes == {"shop/mon_listener": "failed", "shop/mon_metrics": "updated"}
    assert project.events() == EVENTS, "all events are there when the command has ended"


def test_mon_listener_of_a_process_that_is_killed_after_its_run(tmp_path):
    killed = project(tmp_path)
    subprocess.run([sys.executable, "-c", RUN_AND_KILL], cwd=tmp_path, env=killed.environment, check=True)
    assert killed.events() == EVENTS


def test_mon_listener_on_a_warm_server(tmp_path):
    served = project(tmp_path, mode="warm", idle_timeout="1 second")
    served.run()
    deadline = time.monotonic() + 60
    while served.events() != EVENTS:
        assert time.monotonic() < deadline, served.events()
        time.sleep(0.1)


def test_mon_metrics(monitored):
    project, _ = monitored
    [(query, gauges)] = project.gauges().items()
    assert query == "shop.mon_metrics", "a stream can leave itself out"
    assert gauges.keys() == {
        "inputRate-total",
        "processingRate-total",
        "latency",
        "eventTime-watermark",
        "states-rowsTotal",
        "states-usedBytes",
    }
    assert gauges["states-rowsTotal"] == sorted(gauges["states-rowsTotal"])
    assert {0.0, 1.0, 2.0} <= {*gauges["states-rowsTotal"]} <= {0.0, 1.0, 2.0, 3.0}, "one user per batch"
    assert max(gauges["processingRate-total"]) > 0
    assert max(gauges["latency"]) >= 700, "each batch sleeps so long"

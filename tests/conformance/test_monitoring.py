"""Rows of the table: monitoring, and the defaults of a query."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.streams.monitored import project
from tests.conformance.streams.observing import streams
from tests.conformance.streams.observing_oracle import FIRST_RUN, batches
from tests.conformance.streams.runs import observing_runs, on_a_warm_server, scratch_in
from tidemill import (
    BatchSink,
    DeltaAppend,
    DeltaMerge,
    DeltaSource,
    Feed,
    Json,
    KafkaSource,
    Pipeline,
    QueryOptions,
)
from tidemill import functions as F
from tidemill.connectors.connector import SourceContext
from tidemill.engines.engine import SparkEngine
from tidemill.records.stream_records import StreamRecords
from tidemill.run.execute.query import build
from tidemill.run.spark.classic import explained
from tidemill.run.spark.engine import session_of
from tidemill.run.tables.versions import current_versions
from tidemill.storage.table_ref import TableRef
from tidemill.target.spark_settings import SparkSettings
from tidemill.testing import multiset

pytestmark = [pytest.mark.jvm, pytest.mark.campaign, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("where", ["local", "warm"])
def test_mon_observe(where, engine, tmp_path):
    scratch = scratch_in(tmp_path, engine)
    observed = observing_runs(scratch) if where == "local" else on_a_warm_server("observing", tmp_path)
    assert observed[0] == FIRST_RUN
    for stream in streams(scratch.landing):
        lines = StreamRecords(scratch.lake, stream.name).ledger.lines()
        by_batch = [line.observed for line in sorted(lines, key=lambda line: line.batch_id)]
        assert by_batch == batches()[stream.name.stream], stream.name


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


FILES = 1_000
"""The most files that a batch reads where nothing is declared."""


def test_tune(scratch, tmp_path):
    shop = Pipeline("shop")
    few = Feed("names", format=Json("n BIGINT"))
    names = shop.stream(source=few, sink=DeltaAppend(), name="names")(lambda rows: rows)
    views = Feed("views", format=Json("n BIGINT"))
    noted = tmp_path / "pools"

    def note_pool(rows, batch):
        pool = rows.sparkSession.sparkContext.getLocalProperty("spark.scheduler.pool")
        with noted.open("a") as file:
            file.write(f"{batch.stream} {pool}\n")

    pools = BatchSink(note_pool, name="pools")

    @shop.stream(source=views, sink=[pools, DeltaAppend(name="copy"), DeltaAppend()])
    def tune(views):
        """Two tables with one random value per row, in batches of a thousand files, in a scheduler pool of its own."""
        # Spark's own random functions have a seed in the plan.
        return views.withColumn("id", F.expr("reflect('java.util.UUID', 'randomUUID')"))

    @shop.stream(
        source={"rows": tune, "names": names.static()},
        sink=[pools, DeltaMerge(keys=["n"])],
        query=QueryOptions(output_mode="update"),
    )
    def tune_state(rows, names):
        """A small table is sent to all tasks, and state has the partitions that the target suggests."""
        return rows.join(names, "n").groupBy("n").count()

    scratch.run(names, [[{"n": 1}, {"n": 2}]])
    for number in range(FILES + 1):
        scratch.drop_file("views", [{"n": number % 3}])
    results = scratch.run_all([tune, tune_state])
    assert [result.error for result in results if result.error] == []

    batches = [batch.rows_read for batch in results[0].batches]
    assert batches == [FILES, 1], "the limit of a source that declares none"
    assert KafkaSource(subscribe="views").max_records_per_batch == views.max_records_per_batch == 1_000_000
    assert tune.limited().max_files_per_batch == DeltaSource(path="table").max_files_per_batch == FILES

    rows = scratch.rows(tune)
    copy = scratch.table_rows(TableRef.at(Path(scratch.lake.table(tune.name, "copy").uri)), "n", "id")
    assert len(copy) == FILES + 1, "no value twice"
    assert rows == copy, "a batch that is written twice is computed once"

    expected = Counter(number % 3 for number in range(FILES + 1))
    assert scratch.rows(tune_state, "n", "count") == multiset((n, expected[n]) for n in (1, 2))
    expected_pools = {"shop/tune shop/tune", "shop/tune_state shop/tune_state"}
    assert {*noted.read_text().splitlines()} == expected_pools, "a pool per query"

    with session_of(scratch.engine, tune_state.query.confs(2)) as spark:
        context = SourceContext(spark, scratch.target, current_versions(tune_state, scratch.lake))
        plan = explained(build(tune_state, context, 1).rows)
    assert "BroadcastHashJoin" in plan.partition("== Physical Plan ==")[2]

    folders = [
        path
        for path in (scratch.checkpoint(tune_state.name) / "state" / "0").iterdir()
        if path.name.isdigit()
    ]
    assert len(folders) == scratch.engine.default_partitions()
    cores = os.cpu_count()
    defaults = [
        SparkEngine(SparkSettings(master=master)).default_partitions() for master in ("local[*]", "local[2]")
    ]
    assert defaults == [max(2, min(8, cores))] * 2

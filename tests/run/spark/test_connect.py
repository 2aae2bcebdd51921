"""The same pipeline on Spark Connect: nothing outside one module relies on internals of classic Spark."""

import subprocess
import sys

import pytest

from pipelines.ads import ads
from tests.pipelines.ads import oracle
from tests.pipelines.ads.tables import ALL, assert_equal, tables
from tests.servers.connect import HOME, connect_server
from tests.support.recorded import calls
from tests.support.small import SMALL
from tidemill.operations.edits.code_changes import code_changes
from tidemill.storage.lake import Lake
from tidemill.target.spark_settings import SparkSettings
from tidemill.testing import Scratch, multiset

pytestmark = pytest.mark.timeout(560)


@pytest.fixture
def remote(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_AUTH_SOCKET_TIMEOUT", "120")
    monkeypatch.setenv("SPARK_HOME", str(HOME))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    # On a busy machine a Python worker takes longer to connect than the 15 s that Spark gives it.
    conf = SMALL | {"spark.python.authenticate.socketTimeout": "120s"}
    with connect_server(tmp_path, SparkSettings(master="local[2]", driver_memory="1g", conf=conf)) as address:
        yield address


# In a process of its own: pyspark decides once per process, and for its children, between classic and Connect.
RUN = """
import sys
from pathlib import Path
from pipelines.ads import ads
from pipelines.ads.generate import generate
from tests.plans.code_cases import FIRST
from tests.plans.refused_cases import ALLOWED, REFUSED
from tests.support.recorded import recording
from tidemill import DeltaAppend, Feed, FileSource, Json, Pipeline, functions as F
from tidemill.operations.edits.code_changes import code_changes
from tidemill.storage.lake import Lake
from tidemill.run.spark.classic import local_checkpoint
from tidemill.testing import Scratch
from tidemill.engines.engine import SparkEngine
from tidemill.target.spark_settings import SparkSettings

remote, folder = sys.argv[1], Path(sys.argv[2])
engine = SparkEngine(SparkSettings(mode="connect", remote=remote, shuffle_partitions=2))
streams = [ads[name] for name in sys.argv[3:]]
scratch = Scratch(lake=Lake.at(folder / "lake"), landing=folder / "landing", engine=engine)
generate(out=scratch.landing, events=9_000, seed=3, files=2)
for last in (False, False, True):
    errors = [result.error for result in scratch.run_all(streams) if result.error is not None]
    if not errors:
        break
    # Spark gives a Python worker 10 s to connect, which a busy machine can need; the next run continues.
    assert not last and all("connect back" in str(error) for error in errors), errors
feed = Feed("sales", format=Json("id STRING"))
sales = Pipeline("shop").stream(source=feed, sink=recording(folder / "calls", "id"), name="sales")
scratch.run(sales(lambda sales: sales), [[{"id": "a"}, {"id": "b"}]])
# What Spark cannot stream, also where the plan cannot be explained, and what it can.
for case in (REFUSED["a top-N"], REFUSED["subtract"]):
    stream = case.code.stream()
    for source in stream.sources:
        scratch.arrive(stream, source, FIRST)
    [change] = code_changes([stream], scratch.target, engine)
    assert (change.error.code, case.operation in change.what) == (case.error, True), change
    [result] = scratch.run_all([stream])
    assert str(result.error) == str(change.error)
    assert scratch.lake.table(stream.name).log.latest_version() is None
[change] = code_changes([ALLOWED["a limit in append mode"].stream()], scratch.target, engine)
assert change.error is None
# Queries of tables that do not exist yet.
depot = Pipeline("depot")
(scratch.landing / "parcels").mkdir()
parcels = depot.stream(source=Feed("parcels", format=Json("id STRING")), sink=DeltaAppend(), name="parcels")(
    lambda parcels: parcels
)
both = {"parcels": parcels, "known": parcels.static()}
joined = depot.stream(source=both, sink=DeltaAppend(), name="joined")(
    lambda parcels, known: parcels.join(known, "id")
)
ordered = depot.stream(source=joined, sink=DeltaAppend(), name="ordered")(lambda joined: joined.orderBy("id"))
reading = depot.stream(source=both, sink=DeltaAppend(), name="reading")(
    lambda parcels, known: parcels.limit(known.count())
)
kinds = [change.kind for change in code_changes([joined, ordered, reading], scratch.target, engine)]
assert kinds == ["safe", "refused", "unknown"], kinds
# Spark Connect gives a window that `withColumn` makes no watermark, and one that `select` makes has it.
(folder / "in").mkdir()
files = FileSource(path=str(folder / "in"), format="json", schema="id STRING, at TIMESTAMP")
sides = dict.fromkeys(("left", "right"), files.with_watermark("at", "1 hour"))
window = F.window("at", "1 minute")


def joined_by_window(name, with_window):
    return depot.stream(source=sides, sink=DeltaAppend(), name=name)(
        lambda left, right: with_window(left).join(with_window(right), ["id", "w"]).select("id")
    )


added = joined_by_window("added", lambda rows: rows.withColumn("w", window))
selected = joined_by_window("selected", lambda rows: rows.select("*", window.alias("w")))
counted = depot.stream(source={"left": sides["left"]}, sink=DeltaAppend(), name="counted")(
    lambda left: left.withColumn("w", window).groupBy("w").count()
)
changes = [*code_changes([added, selected, counted], scratch.target, engine)]
assert "select('*'" in changes[0].warnings[0], changes
assert (changes[1].error, changes[1].warnings) == (None, ()), changes
assert changes[2].error.code == "watermark-missing", changes
_, second = engine.new(), engine.new()
rows = local_checkpoint(second.range(3))
assert (rows.sparkSession is second, rows.count()) == (True, 3)
del rows
engine.stop()  # also `second`, which would keep this process from exiting
"""


# An ingest, a history, Spark's own sink, a merge of running totals and a stateful processor; the other streams are of
# these kinds.
SOME = ("impressions", "campaigns", "unique_impressions", "campaign_totals", "frequency_alerts")


@pytest.mark.campaign
@pytest.mark.parametrize("streams", [SOME, ALL], ids=["some", "all"])
def test_ads_on_a_connect_server(remote, tmp_path, engine, streams):
    subprocess.run([sys.executable, "-c", RUN, remote, str(tmp_path), *streams], check=True, timeout=500)
    scratch = Scratch(lake=Lake.at(tmp_path / "lake"), landing=tmp_path / "landing", engine=engine)
    assert_equal(tables(scratch, streams), oracle.expected(scratch.landing))
    # The function of a batch sink runs on the server.
    [call] = calls(tmp_path / "calls")
    assert (call.stream, call.batch_id, call.rows) == ("shop/sales", 0, multiset([("a",), ("b",)]))
    # Both print the same plans, so a stream can move between them.
    changes = list(code_changes([ads[name] for name in streams], scratch.target, engine))
    assert [(change.stream, change.error, change.differences) for change in changes] == [
        (ads[name], None, ()) for name in streams
    ]

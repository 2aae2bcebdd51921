"""The pipeline `ads` on a real cluster: whatever ends in the middle of a batch, every table is equal to the oracle."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest
from dagster import AssetKey, AssetSelection, PipesSubprocessClient, materialize

from bench.kills.worlds import AdsFiles
from pipelines.ads import ads
from tests.cluster.standalone import READY_SECONDS, Standalone
from tests.servers.connect import connect_server
from tests.servers.spark_of_tests import ON_A_CLUSTER
from tests.support.waiting import wait_for
from tidemill.target.spark_settings import SparkSettings

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
TIDEMILL = Path(sys.executable).with_name("tidemill")
FOR_RUN = 900
SETTINGS = """
pipelines = ["pipelines.ads:ads"]

default_target = "prod"

[targets.prod]
lake = "lake"
landing = "landing"

[targets.prod.spark]
shuffle_partitions = 2
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Standalone(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def world(cluster, tmp_path):
    world = AdsFiles(tmp_path / "world", seed=7)
    confs = ", ".join(f'"{key}" = "{value}"' for key, value in ON_A_CLUSTER.items())
    spark = f'master = "{cluster.address}"\nconf = {{ {confs} }}\n'
    (world.folder / "tidemill.toml").write_text(SETTINGS + spark)
    yield world
    for run in Run.started:  # a driver waits for its master for a long time
        if run.process.poll() is None:
            run.kill()
    Run.started.clear()


class Run:
    """`tidemill run` on the cluster."""

    started: ClassVar[list["Run"]] = []

    def __init__(self, world):
        self.started.append(self)
        self.output, self.log = world.folder / "run.json", world.folder / "run.log"
        with self.output.open("w") as output, self.log.open("w") as log:
            self.process = subprocess.Popen(
                [TIDEMILL, "run", "--json"],
                cwd=world.folder,
                stdout=output,
                stderr=log,
                start_new_session=True,
            )

    def succeed(self):
        assert self.process.wait(FOR_RUN) == 0, self.log.read_text()[-4000:] + self.output.read_text()[-4000:]
        streams = json.loads(self.output.read_text())["streams"]
        return {stream["stream"]: stream["outcome"] for stream in streams}

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


def is_in_a_batch(world):
    """Return whether a batch is planned and not committed."""
    for stream in ads:
        checkpoint = world.scratch.checkpoint(stream.name)
        planned, committed = (
            {file.name for file in (checkpoint / log).glob("[0-9]*")} for log in ("offsets", "commits")
        )
        if planned - committed:
            return True
    return False


@pytest.mark.parametrize("victim", ["executor", "worker", "driver"])
def test_ads_is_exact_when_something_ends_in_the_middle_of_a_batch(cluster, world, victim):
    world.arrive(0)
    Run(world).succeed()
    world.arrive(1)
    run = Run(world)
    wait_for(lambda: is_in_a_batch(world), FOR_RUN, run.log)
    assert cluster.executors(), "the tasks run in executors of their own"
    if victim == "executor":
        cluster.kill_an_executor()
        run.succeed()
    elif victim == "worker":
        cluster.stop_worker(0)
        cluster.start_worker(0)
        run.succeed()
    else:
        run.kill()
        wait_for(lambda: not cluster.executors(), 120)
        Run(world).succeed()
    world.arrive(2)
    Run(world).succeed()
    assert world.differences() == []
    assert set(Run(world).succeed().values()) == {"idle"}


def test_ads_is_exact_on_a_connect_server_whose_executors_are_on_the_cluster(
    cluster, world, tmp_path, monkeypatch
):
    monkeypatch.setenv("SPARK_DAEMON_MEMORY", "1g")  # Spark counts a Connect server as a daemon
    settings = SparkSettings(master=cluster.address, driver_memory="1g", conf=ON_A_CLUSTER)
    with connect_server(tmp_path, settings, seconds=READY_SECONDS) as address:
        spark = f'mode = "connect"\nremote = "{address}"\n'
        (world.folder / "tidemill.toml").write_text(SETTINGS + spark)
        world.arrive(0)
        Run(world).succeed()
        world.arrive(1)
        run = Run(world)
        wait_for(lambda: is_in_a_batch(world), FOR_RUN, run.log)
        cluster.kill_an_executor()
        run.succeed()
        world.arrive(2)
        Run(world).succeed()
    assert world.differences() == []


def reported(result):
    """Return the outcome and the rows of the only asset of a run."""
    [event] = result.get_asset_materialization_events()
    metadata = event.materialization.metadata
    return metadata["tidemill/outcome"].value, metadata["tidemill/rows_written"].value


@pytest.mark.filterwarnings("ignore::dagster.PreviewWarning", "ignore::DeprecationWarning")  # Dagster's own
def test_the_example_of_dagster_pipes_runs_on_the_cluster(world):
    page = (ROOT / "docs" / "clusters.md").read_text()
    script, asset = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (world.folder / "run_streams.py").write_text(script)
    module = ModuleType("ads_on_the_cluster")
    exec(compile(asset, "docs/clusters.md", "exec"), module.__dict__)  # noqa: S102 - our own page
    world.arrive(0)
    client = PipesSubprocessClient(cwd=str(world.folder), env=os.environ | {"PYTHONPATH": str(ROOT)})
    assets = [module.ads_on_the_cluster]
    selection = AssetSelection.assets(AssetKey(["ads", "impressions"]))
    first, second = (materialize(assets, resources={"pipes": client}, selection=selection) for _ in range(2))
    rows = world.scratch.rows(ads["impressions"], "ad_id").total()
    assert [reported(result) for result in (first, second)] == [("updated", rows), ("idle", 0)]
    assert rows

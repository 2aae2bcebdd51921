"""The Spark of the tests: local, or the one that TEST_SPARK names, `warm` or `cluster`."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from tests.support.lakes import ON_S3, bucket
from tests.support.small import SMALL
from tidemill.engines.warm.wire import running
from tidemill.target.server_home import ServerHome
from tidemill.target.spark_settings import SparkSettings

ROOT = Path(__file__).parents[2]
WHERE = os.environ.get("TEST_SPARK", "local")
# The processes of a test find the same Spark here: the address of the cluster, or the folder of the warm server.
_FOUND = "TEST_SPARK_AT"
_SMALL = {"driver_memory": "1g", "shuffle_partitions": 2}
ON_A_CLUSTER = SMALL | {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "1g",
    "spark.executor.extraJavaOptions": SMALL["spark.driver.extraJavaOptions"],
}


def settings(*, cores: int = 2) -> SparkSettings:
    """Return the settings of a small Spark, within `spark_of_tests` of this process or of one that has started it."""
    store = {"store": bucket().settings, "has_lake_on_store": True} if ON_S3 else {}
    if WHERE == "cluster":
        own = {"spark.cores.max": str(cores), "spark.executorEnv.PYTHONPATH": str(ROOT)}
        return SparkSettings(
            mode="cluster", master=os.environ[_FOUND], conf=ON_A_CLUSTER | own, **store, **_SMALL
        )
    if WHERE == "warm":
        return SparkSettings(
            mode="warm",
            master="local[3]",
            idle_timeout=timedelta(seconds=20),
            server=_home(os.environ[_FOUND]),
            conf=SMALL,
            **store,
            **_SMALL,
        )
    return SparkSettings(master=f"local[{cores}]", conf=SMALL, **store, **_SMALL)


def own_server(folder: Path) -> dict[str, str]:
    """Return the environment of a process whose warm server is its own, and has its environment."""
    return {_FOUND: str(folder)} if WHERE == "warm" else {}


def kill_server(folder: Path) -> None:
    """Kill the warm server of such a process, and its JVM."""
    record = running(_home(folder))
    if record is not None:
        for pid in (record.pid, record.jvm_pid):
            os.kill(pid, signal.SIGKILL)


def _home(folder: Path | str) -> ServerHome:
    return ServerHome("tests", ROOT, Path(folder))


@contextmanager
def spark_of_tests(folder: Path) -> Iterator[None]:
    """Start what the Spark of the tests needs.

    Args:
        folder: An empty folder.
    """
    if WHERE == "cluster":
        from tests.cluster.standalone import Standalone

        with Standalone(folder, cores=6) as cluster:
            os.environ[_FOUND] = cluster.address
            yield
        return
    os.environ[_FOUND] = str(folder / "server")
    yield

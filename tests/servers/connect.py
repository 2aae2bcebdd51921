"""A Spark Connect server on loopback."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import free_port, listens, wait_for
from tidemill.engines.dev import supervised
from tidemill.engines.installed import pyspark_folder
from tidemill.engines.launch import application_confs
from tidemill.target.spark_settings import SparkSettings

HOME = pyspark_folder()


@contextmanager
def connect_server(folder: Path, settings: SparkSettings, *, seconds: float = 90) -> Iterator[str]:
    """Yield the address of a server, which ends with the block or with this process.

    Args:
        folder: Where its log and its scratch folder go.
        settings: The settings of its Spark.
        seconds: How long it may take until it listens.
    """
    port = free_port()
    confs = application_confs(settings)
    confs |= {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    jars = confs.pop("spark.jars")
    command = [
        str(HOME / "bin" / "spark-submit"),
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--jars",
        jars,
        *(part for key, value in confs.items() for part in ("--conf", f"{key}={value}")),
        "spark-internal",
    ]
    log = folder / "server.log"
    scratch = folder / "server"
    scratch.mkdir()
    process = supervised.start(command, scratch=scratch, log=log)
    try:
        wait_for(lambda: listens(port), seconds, log)
        yield f"sc://127.0.0.1:{port}"
    finally:
        supervised.stop(process)

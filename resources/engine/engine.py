"""Spark engine for runs: one JVM (or server) a process, one isolated session a stream."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Literal

import psutil

from pipelines.streaming.errors import CanceledError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_CONFIG = Path(__file__).with_name("log4j2.properties")

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

SparkMode = Literal["local", "connect", "cluster"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Where Spark runs.

    Attributes:
        mode: `local` (a JVM inside this process), `connect` (a Spark Connect server) or `cluster`.
        master: The master of `local` and `cluster`: `local[*]`, `spark://host:7077`, `yarn`, `k8s://...`.
        remote: The server of `connect`: `sc://host:15002`.
        driver_memory: Memory of the driver's JVM.
        shuffle_partitions: Partitions of new stateful queries; None: one a core, 2 to 8.
        conf: Further Spark confs of the whole application.
    """

    mode: SparkMode = "local"
    master: str = "local[*]"
    remote: str | None = None
    driver_memory: str = "1g"
    shuffle_partitions: int | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


def application_confs(settings: SparkSettings) -> dict[str, str]:
    """The confs of a classic application: Delta, its jars, and quiet defaults that a target may override."""
    from resources.jars import spark_jars

    return {
        "spark.app.name": "tidemill",
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        "spark.jars": ",".join(str(jar) for jar in spark_jars()),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.scheduler.mode": "FAIR",
        # Delta computes the state of a table in 50 tasks; on a few cores two do the same in a tenth of the time.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(
            {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
            if settings.mode == "local"
            else {}
        ),
        **settings.conf,
        # The JVM reads our log settings before Spark's own, which print a page of warnings at every start.
        # Spark takes a Python traceback apart with a regular expression, which needs more than the 1 MB of a
        # stack when a batch function is stopped.
        _JAVA_OPTIONS: (
            f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()} -Xss8m {settings.conf.get(_JAVA_OPTIONS, '')}"
        ),
    }


class SparkEngine:
    """Engine of one target, started when the first one is asked for.

    Args:
        settings: Where Spark runs.
    """

    def __init__(self, settings: SparkSettings) -> None:
        self.settings = settings
        self._root: SparkSession | None = None
        self._lock = Lock()
        self._start_aborted = False
        self._older: set[int] = set()

    def root(self) -> "SparkSession":
        """The session that a user's own batch code shares.

        Raises:
            ConfigurationError: there is no suitable Java, or the jars cannot be had.
            CanceledError: the start was broken off.
        """
        with self._lock:  # a second stream must not start Spark again after the first start was broken off
            if self._root is None:
                self._root = self._first()
            return self._root

    def new(self) -> "SparkSession":
        """A session with confs and temporary views of its own."""
        root = self.root()
        if self.settings.mode == "connect":
            return self._connect()
        return root.newSession()

    def default_partitions(self) -> int:
        """Shuffle partitions of a query that does not say: the target's, else one a core, 2 to 8.

        Spark's own 200 make a small stateful run ten times slower, and a checkpoint keeps them for ever.
        """
        return self.settings.shuffle_partitions or max(2, min(8, os.cpu_count() or 2))

    def abort_start(self) -> None:
        """Keeps Spark from starting, now and later; once it is there this does nothing.

        A query can be stopped; a JVM that is just starting cannot be asked, so it is killed. Nothing is lost:
        no query of it has begun.
        """
        if self._root is not None:
            return
        self._start_aborted = True
        for process in _spark_processes():
            if process.pid not in self._older:
                with suppress(psutil.NoSuchProcess):
                    process.kill()

    def stop(self) -> None:
        """Ends the JVM, or leaves the server."""
        with self._lock:
            if self._root is not None:
                self._root.stop()
                self._root = None

    def _first(self) -> "SparkSession":
        if self._start_aborted:
            raise CanceledError
        self._older = {process.pid for process in _spark_processes()}
        try:
            return self._connect() if self.settings.mode == "connect" else self._start()
        except Exception:
            if self._start_aborted:
                raise CanceledError from None
            raise

    def _start(self) -> "SparkSession":
        from resources.engine.java import require_java

        require_java()
        from pyspark.sql import SparkSession

        # Python workers must be this very Python; without it a stateful processor dies without a word.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder
        for key, value in application_confs(self.settings).items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    def _connect(self) -> "SparkSession":
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.remote(self.settings.remote or "")
        return builder.config("spark.sql.session.timeZone", "UTC").create()


def _spark_processes() -> Iterator[psutil.Process]:
    """The JVMs that pyspark started for this process, and the scripts that are about to become one."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "pyspark-shell" in child.cmdline():
                yield child

"""Spark engine of a run: one JVM (or server) per process, one isolated session per stream."""

import os
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

import psutil

from pipelines.streaming.errors import CanceledError
from pipelines.streaming.secret import Secret
from resources.engine.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkEngine:
    """The Spark of one target, started when the first session is requested.

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
        """Return the session that a user's own batch code shares.

        Raises:
            ConfigurationError: There is no suitable Java, the jars are not available, or a variable that holds
                a secret is not set.
            CanceledError: The start was aborted.
        """
        with self._lock:  # a second stream must not start Spark again after the first start was aborted
            if self._root is None:
                self._root = self._first()
            return self._root

    def new(self) -> "SparkSession":
        """Return a session with its own confs and temporary views."""
        root = self.root()
        if self.settings.mode == "connect":
            return self._connect()
        return root.newSession()

    def default_partitions(self) -> int:
        """Return the shuffle partitions of a query without a setting: the target's, else one per core, 2 to 8.

        Spark's own 200 make a small stateful run ten times slower, and a checkpoint keeps them permanently.
        """
        return self.settings.shuffle_partitions or max(2, min(8, os.cpu_count() or 2))

    def abort_start(self) -> None:
        """Keep Spark from starting, now and later; do nothing once it has started.

        A query can be stopped; a JVM that is just starting takes no requests, so it is killed. No data is lost:
        none of its queries has begun.
        """
        if self._root is not None:
            return
        self._start_aborted = True
        for process in _spark_processes():
            if process.pid not in self._older:
                with suppress(psutil.NoSuchProcess):
                    process.kill()

    def stop(self) -> None:
        """End the application, or disconnect from the server."""
        with self._lock:
            if self._root is not None:
                self._root.stop()
                self._root = None

    def _first(self) -> "SparkSession":
        if self._start_aborted:
            raise CanceledError
        self._older = {process.pid for process in _spark_processes()}
        from resources.engine.quiet import silence_query_contexts

        silence_query_contexts()
        try:
            return self._connect() if self.settings.mode == "connect" else self._start()
        except Exception:
            if self._start_aborted:
                raise CanceledError from None
            raise

    def _start(self) -> "SparkSession":
        from resources.engine.java import require_java

        require_java()
        from resources.engine.launch import start

        return start(self.settings)

    def _connect(self) -> "SparkSession":
        from pyspark.sql import SparkSession

        remote = self.settings.remote
        address = remote.reveal() if isinstance(remote, Secret) else remote or ""
        return SparkSession.builder.remote(address).config("spark.sql.session.timeZone", "UTC").create()


def _spark_processes() -> Iterator[psutil.Process]:
    """Yield the JVMs that pyspark started for this process, and the scripts that are about to become one."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "pyspark-shell" in child.cmdline():
                yield child

"""Spark engine of a run: one JVM (or server) per process, one isolated session per stream."""

import os
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import psutil

from tidemill.errors import CanceledError, TerminalError
from tidemill.run.spark import classic
from tidemill.run.spark.engine import QueryServer
from tidemill.target.spark_settings import SparkSettings
from tidemill.text.secret import Secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.engines.warm.attachment import Attachment

_MOST_SIDE_BY_SIDE = 4


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
        self._little = False
        self._attachment: Attachment | None = None
        self._connected: WeakSet[Any] = WeakSet()

    def root(self) -> "SparkSession":
        """Return the session that a user's own batch code shares.

        Raises:
            ConfigurationError: There is no suitable Java, the jars are not available, or a variable that holds
                a secret is not set.
            CanceledError: The start was aborted.
            TerminalError: Somebody stopped the warm server.
        """
        with self._lock:  # a second stream must not start Spark again after the first start was aborted
            if self._attachment is not None and self._attachment.ended.is_set():
                self._forget(self._attachment)
            if self._root is None:
                self._root = self._first()
            return self._root

    def new(self) -> "SparkSession":
        """Return a session with its own confs and temporary views."""
        root = self.root()
        if self.settings.mode in ("connect", "warm"):
            return self._connect()
        return root.newSession()

    def close(self, session: "SparkSession") -> None:
        """Release a session that a server keeps; one of a JVM of this process ends with its last reference."""
        if session in self._connected:
            self._connected.discard(session)
            self._release(session, served=self._attachment is None or not self._attachment.ended.is_set())

    def expect(self, *, little: bool) -> None:
        """Let a JVM of this process compile less where little data waits; do nothing once it has started."""
        self._little = little

    def server(self) -> QueryServer | None:
        """Return the warm server that runs the queries of this process; None if there is none."""
        if self._attachment is None:
            return None
        return QueryServer(self._attachment.record.jvm_pid, self._attachment.file)

    def default_partitions(self) -> int:
        """Return the shuffle partitions of a query without a setting.

        They are the target's; else on this machine one per core, 2 to 8, because Spark's 200 make a small stateful run
        ten times slower, and a checkpoint keeps them permanently. A cluster has its own default.
        """
        if self.settings.shuffle_partitions is not None:
            return self.settings.shuffle_partitions
        if self.settings.is_on_this_machine:
            return max(2, min(8, os.cpu_count() or 2))
        return int(self.root().conf.get("spark.sql.shuffle.partitions") or 200)

    def default_parallel(self) -> int:
        """Return how many streams of a run are side by side: the target's number, else at most 4."""
        cores = (os.cpu_count() or 1) if self.settings.is_on_this_machine else _MOST_SIDE_BY_SIDE
        return self.settings.parallel or min(_MOST_SIDE_BY_SIDE, cores)

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

    def drain(self) -> None:
        """Wait until the listeners of a JVM of this process have all events: it may be killed with the process."""
        if self._root is not None and not self._connected:
            classic.wait_for_listeners(self._root)

    def stop(self) -> None:
        """End the application, or disconnect from the server."""
        with self._lock:
            attachment, self._attachment = self._attachment, None
            if self._root is not None and not self._connected:
                self._root.stop()
            self._disconnect(served=attachment is None or not attachment.ended.is_set())
            self._root = None
            if attachment is not None:
                attachment.close()

    def _first(self) -> "SparkSession":
        if self._start_aborted:
            raise CanceledError
        self._older = {process.pid for process in _spark_processes()}
        from tidemill.engines.quiet import silence_query_contexts

        silence_query_contexts()
        try:
            if self.settings.mode == "connect":
                return self._connect()
            from tidemill.engines.java import require_java

            require_java()
            if self.settings.mode != "warm":
                from tidemill.engines.launch import application_confs, jars_of_store, start

                confs = application_confs(self.settings, little=self._little)
                return start(confs, last=jars_of_store(self.settings))
            if self._attachment is None:
                from tidemill.engines.warm.attachment import attach

                self._attachment = attach(self.settings, aborted=lambda: self._start_aborted)
            return self._connect()
        except Exception:
            if self._start_aborted:
                raise CanceledError from None
            raise

    def _forget(self, attachment: "Attachment") -> None:
        """Forget a server that has ended, so that the next session has another one."""
        from tidemill.engines.warm.stop import wait_until_ended

        server = self.settings.server
        if attachment.was_stopped or server is None:
            raise TerminalError(
                "the warm server was stopped during this run.",
                fix="run it again; the next run starts a server and continues where this one stopped.",
                code="warm-server-stopped",
            )
        wait_until_ended(server, attachment.record)  # its queries may write as long as its JVM lives
        self._disconnect(served=False)
        self._root = self._attachment = None

    def _disconnect(self, *, served: bool) -> None:
        """Stop all sessions of a server; one that is not stopped stays pyspark's active session.

        A process whose variables still hold one when it exits would wait forever for its channel to close.

        Args:
            served: Whether the server lives, and is asked to release them.
        """
        for session in list(self._connected):
            self._release(session, served=served)

    @staticmethod
    def _release(session: "SparkSession", *, served: bool) -> None:
        session.release_session_on_close = served  # type: ignore[attr-defined]  # of a session of Spark Connect
        session.stop()

    def _connect(self) -> "SparkSession":
        from pyspark.sql import SparkSession

        remote = self._attachment.address if self._attachment is not None else self.settings.remote
        address = remote.reveal() if isinstance(remote, Secret) else remote or ""
        session = SparkSession.builder.remote(address).config("spark.sql.session.timeZone", "UTC").create()
        if self._attachment is not None:
            from tidemill.engines.warm.retries import WhileServed

            session.client.set_retry_policies([WhileServed(self._attachment.ended)])
        self._connected.add(session)
        return session


def _spark_processes() -> Iterator[psutil.Process]:
    """Yield the JVMs that pyspark started for this process, and the scripts that are about to become one."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "pyspark-shell" in child.cmdline():
                yield child

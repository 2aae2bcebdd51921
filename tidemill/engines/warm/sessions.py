"""The Spark Connect sessions inside a warm server: the one module that uses internals of the service."""

import gc
import time
from typing import TYPE_CHECKING, Any

from tidemill.run.spark.classic import each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# A commit of Delta is not interrupted, and a large one on a slow disk takes seconds.
CLOSE_SECONDS = 110.0
_POLL_SECONDS = 0.1
_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"


class ConnectSessions:
    """The sessions of all clients, reached through the server's own classic session.

    Args:
        spark: That session.
    """

    def __init__(self, spark: "SparkSession") -> None:
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - the service has no public API in its JVM
        self._service: Any = getattr(getattr(self._jvm, _SERVICE), "MODULE$")
        cache = self._service.streamingSessionManager()
        field = cache.getClass().getDeclaredField("queryCache")
        field.setAccessible(True)
        self._queries: Any = field.get(cache)

    @property
    def port(self) -> int:
        """The port of the service."""
        return int(self._service.localPort())

    def close(self, client: str) -> None:
        """Close the sessions of a client; return when none of its queries can write any more.

        Raises:
            TimeoutError: A query or an operation does not stop.
        """
        operations = set(self._operations(client))
        classic = []
        for key, session in self._sessions(client):
            classic.append(session)
            operations |= set(self._operations(client))
            self._service.sessionManager().closeSession(key, False)
        deadline = time.monotonic() + CLOSE_SECONDS
        while self._still_working(classic, operations):
            if time.monotonic() > deadline:
                raise TimeoutError(f"still working after {CLOSE_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)

    def forget_finished(self) -> None:
        """Forget the finished queries of closed sessions, which nobody can ask for any more.

        Spark keeps each for an hour, with its session and plans: several MB of the heap.
        """
        finished = [key for key in list(self._queries.keySet()) if self._is_finished(key)]
        for key in finished:
            self._queries.remove(key)
        if finished:
            # The JVM keeps an object until Python has collected its proxy, and a proxy that was used refers to itself.
            gc.collect()

    def _is_finished(self, key: Any) -> bool:
        """Return whether a query has ended, and its session, too."""
        kept = self._queries.get(key)
        if kept is None or kept.query().isActive():
            return False
        session = self._jvm.org.apache.spark.sql.connect.service.SessionKey(kept.userId(), kept.sessionId())
        return bool(self._service.sessionManager().getIsolatedSessionIfPresent(session).isEmpty())

    def _still_working(self, sessions: list[Any], operations: set[str]) -> bool:
        active = [query for session in sessions for query in session.streams().active()]
        for query in active:  # one that was starting when its session was closed
            query.stop()
        return bool(active) or any(
            name.endswith(f"opId={operation}") for name in self._threads() for operation in operations
        )

    def _sessions(self, client: str) -> "Iterator[tuple[Any, Any]]":
        """Yield the key and the classic session of each session of a client."""
        manager = self._service.sessionManager()
        for info in each(manager.listActiveSessions()):
            if info.userId() == client:
                holder = manager.getIsolatedSessionIfPresent(info.key())
                if holder.isDefined():
                    yield info.key(), holder.get().session()

    def _operations(self, client: str) -> "Iterator[str]":
        """Yield the operations of a client that are running."""
        running = self._service.listActiveExecutions()
        if running.isRight():
            for info in each(running.toOption().get()):
                if info.userId() == client:
                    yield str(info.operationId())

    def _threads(self) -> list[str]:
        """Return the names of the threads that work for clients: an interrupted operation ends with its thread."""
        threads = self._jvm.java.lang.Thread.getAllStackTraces().keySet()
        return [str(thread.getName()) for thread in threads]

"""Engine: where a run gets its Spark sessions from."""

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tidemill.run.spark import classic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from tidemill.records.lease import Lease


@dataclass(frozen=True, slots=True)
class QueryServer:
    """A server on this machine that runs the queries of this process and outlives it.

    Attributes:
        attachment: A file that the server removes when all queries of this process have stopped.
    """

    jvm_pid: int
    attachment: Path


class Engine(Protocol):
    """Spark sessions of one JVM or server; the first session may start a JVM."""

    def new(self) -> "SparkSession":
        """Return a session with confs and temporary views of its own."""

    def close(self, session: "SparkSession") -> None:
        """Let go of a session that `new` returned, so that a server can forget it; its queries have ended."""

    def expect(self, *, little: bool) -> None:
        """Say whether little data waits, so that Spark can start for that; do nothing once it has started."""

    def server(self) -> QueryServer | None:
        """Return the server on this machine that runs the queries; None if they end with this process."""

    def default_partitions(self) -> int:
        """Return the shuffle partitions of a query that does not declare any."""

    def default_parallel(self) -> int:
        """Return how many streams of a run are side by side."""

    def abort_start(self) -> None:
        """Keep Spark from starting, now and later; do nothing once it has started."""


@contextmanager
def session_of(engine: Engine, confs: "Mapping[str, str] | None" = None) -> "Iterator[SparkSession]":
    """Yield a session, with confs of its own, and close it at the end: a server keeps what an open one has done."""
    session = engine.new()
    try:
        for key, value in (confs or {}).items():
            session.conf.set(key, value)
        yield session
    finally:
        engine.close(session)


def record_jvm(lease: "Lease", engine: Engine, spark: "SparkSession") -> None:
    """Record in a lease where its holder's queries run, so that others can see whether they have ended, too."""
    server = engine.server()
    if server is None:
        lease.record_jvm(classic.jvm_pid(spark))
    else:
        lease.record_jvm(server.jvm_pid, attachment=server.attachment)

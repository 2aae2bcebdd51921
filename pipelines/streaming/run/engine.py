"""Engine: where a run gets its Spark sessions from."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine(Protocol):
    """Spark sessions of one JVM or server; the first session may start a JVM."""

    def new(self) -> "SparkSession":
        """Return a session with confs and temporary views of its own."""

    def default_partitions(self) -> int:
        """Return the shuffle partitions of a query that does not declare any."""

    def abort_start(self) -> None:
        """Keep Spark from starting, now and later; do nothing once it has started."""

"""The jars that the JVM needs beyond pyspark's own: pinned, fetched once, verified at each use, then offline.

Two sets, each an ivy.xml with a file of sha256 checksums: Spark's (Delta Lake, the Kafka source) and the
development Kafka broker's. See `cache` for the guarantees when a fetch is interrupted.
"""

from pathlib import Path

from tidemill.engines.jars.cache import jars_of
from tidemill.engines.jars.sets import BROKER, SPARK

__all__ = ["BROKER", "SPARK", "broker_jars", "spark_jars"]


def spark_jars() -> list[Path]:
    """Return the local files that `spark.jars` must list; raises as `jars_of` does."""
    return jars_of(SPARK)


def broker_jars() -> list[Path]:
    """Return the class path of the development Kafka broker as local files; raises as `jars_of` does."""
    return jars_of(BROKER)

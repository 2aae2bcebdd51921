"""The jars that the JVM needs beyond pyspark's own: pinned, fetched once, verified at each use, then offline.

Two sets, each an ivy.xml with sha256 sums beside it: Spark's (Delta Lake, the Kafka source) and those of the
development Kafka broker. See `cache` for what holds when a fetch is interrupted.
"""

from pathlib import Path

from resources.jars.cache import jars_of
from resources.jars.sets import BROKER, SPARK

__all__ = ["BROKER", "SPARK", "broker_jars", "spark_jars"]


def spark_jars() -> list[Path]:
    """What `spark.jars` must list, as local files; see `jars_of` for what is raised."""
    return jars_of(SPARK)


def broker_jars() -> list[Path]:
    """The class path of the development Kafka broker, as local files; see `jars_of` for what is raised."""
    return jars_of(BROKER)

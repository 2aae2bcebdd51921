"""The jars that the JVM needs beyond pyspark's own: pinned, fetched once, verified at each use, then offline.

Three sets, each an ivy.xml with a file of sha256 checksums: Spark's (Delta Lake, the Kafka source), those of a lake on
S3, and the development Kafka broker's. See `cache` for the guarantees when a fetch is interrupted. One jar is our own
and part of the package: `log_store`.
"""

from pathlib import Path

from tidemill.engines.jars.cache import jars_of
from tidemill.engines.jars.log_store import JAR
from tidemill.engines.jars.sets import BROKER, S3, SPARK, STORES

__all__ = ["BROKER", "S3", "SPARK", "broker_jars", "spark_jars", "store_jars"]


def spark_jars() -> list[Path]:
    """Return the local files that `spark.jars` must list; raises as `jars_of` does."""
    return jars_of(SPARK)


def store_jars(scheme: str) -> list[Path]:
    """Return the local files that `spark.jars` must list for a lake on a store, after `spark_jars`.

    The last one has the LogStore that Delta must use there. Raises as `jars_of` does.

    Args:
        scheme: The scheme of the lake's URI; for one that Spark reads without further jars there are none.
    """
    jar_set = STORES.get(scheme)
    return [] if jar_set is None else [*jars_of(jar_set), JAR]


def broker_jars() -> list[Path]:
    """Return the class path of the development Kafka broker as local files; raises as `jars_of` does."""
    return jars_of(BROKER)

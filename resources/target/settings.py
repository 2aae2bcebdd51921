"""A target's settings as they may be shown: with their origin, and with secrets masked."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from pipelines.streaming.target import KafkaCluster
from resources.engine.engine import SparkSettings
from resources.target.config import SECRET_CONF, TOKEN

MASK = "********"


@dataclass(frozen=True, slots=True)
class Setting:
    """A resolved setting as it may be shown.

    Attributes:
        name: Its name, as a path into the target: `spark.mode`.
        value: Its value; a secret is masked.
        origin: Where it came from.
    """

    name: str
    value: str
    origin: str


def spark_values(spark: SparkSettings) -> dict[str, object]:
    """How Spark runs, by setting; None where there is no value."""
    values = {
        f"spark.{each.name}": getattr(spark, each.name) for each in fields(spark) if each.name != "conf"
    }
    if spark.remote:
        values["spark.remote"] = TOKEN.sub(MASK, spark.remote)
    confs = {
        f"spark.conf.{key}": MASK if SECRET_CONF.search(key) else value for key, value in spark.conf.items()
    }
    return values | confs


def cluster_values(clusters: Mapping[str, KafkaCluster]) -> dict[str, object]:
    """How Kafka clusters are reached, by setting; None where there is no value."""
    return {
        f"kafka.{name}.{each.name}": MASK
        if each.name == "password" and cluster.password
        else getattr(cluster, each.name)
        for name, cluster in clusters.items()
        for each in fields(cluster)
    }

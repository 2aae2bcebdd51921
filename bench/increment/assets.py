"""The three hops of plain PySpark as Dagster assets with the session of dagster-pyspark, under the default executor."""

import json
import os

from dagster import Definitions, asset
from dagster_pyspark import PySparkResource

from bench.increment import by_hand

ROOT = os.environ["HOPS_ASSETS"]


@asset
def first(pyspark: PySparkResource) -> None:
    """Keep the rows as they are."""
    by_hand.first(pyspark.spark_session, ROOT)


@asset(deps=[first])
def second(pyspark: PySparkResource) -> None:
    """Write words in upper case."""
    by_hand.second(pyspark.spark_session, ROOT)


@asset(deps=[second])
def third(pyspark: PySparkResource) -> None:
    """Keep every other row."""
    by_hand.third(pyspark.spark_session, ROOT)


defs = Definitions(
    assets=[first, second, third],
    resources={"pyspark": PySparkResource(spark_config=json.loads(os.environ["HOPS_CONFS"]))},
)

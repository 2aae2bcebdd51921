"""The three hops as plain Dagster assets with the session of dagster-pyspark, under the default executor."""

import json
import os

from dagster import Definitions, asset
from dagster_pyspark import PySparkResource
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

ROOT = os.environ["HOPS_ASSETS"]


def run(rows: DataFrame, name: str) -> None:
    """Run a query into the table of its name."""
    writer = rows.writeStream.format("delta").option("checkpointLocation", f"{ROOT}/{name}.checkpoint")
    writer.trigger(availableNow=True).start(f"{ROOT}/{name}").awaitTermination()


def table(pyspark: PySparkResource, name: str) -> DataFrame:
    """Return a table as a stream."""
    return pyspark.spark_session.readStream.format("delta").load(f"{ROOT}/{name}")


@asset
def first(pyspark: PySparkResource) -> None:
    """Keep the rows as they are."""
    reader = pyspark.spark_session.readStream.schema("id BIGINT, word STRING")
    run(reader.json(os.environ["HOPS_LANDING"]), "first")


@asset(deps=[first])
def second(pyspark: PySparkResource) -> None:
    """Write words in upper case."""
    run(table(pyspark, "first").withColumn("word", F.upper("word")), "second")


@asset(deps=[second])
def third(pyspark: PySparkResource) -> None:
    """Keep every other row."""
    run(table(pyspark, "second").where("id % 2 = 0"), "third")


defs = Definitions(
    assets=[first, second, third],
    resources={"pyspark": PySparkResource(spark_config=json.loads(os.environ["HOPS_CONFS"]))},
)

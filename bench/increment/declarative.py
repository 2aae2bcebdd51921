"""The three hops as tables of Spark Declarative Pipelines."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


@dp.table
def first() -> DataFrame:
    """Keep the rows as they are."""
    return spark.readStream.schema("id BIGINT, word STRING").json(os.environ["HOPS_LANDING"])


@dp.table
def second() -> DataFrame:
    """Write words in upper case."""
    return spark.readStream.table("first").withColumn("word", F.upper("word"))


@dp.table
def third() -> DataFrame:
    """Keep every other row."""
    return spark.readStream.table("second").where("id % 2 = 0")

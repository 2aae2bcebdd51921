"""The three hops in plain PySpark: `python by_hand.py FOLDER` runs them one after another in one session."""

import json
import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def first(spark: SparkSession, root: str) -> None:
    """Keep the rows as they are."""
    _run(spark.readStream.schema("id BIGINT, word STRING").json(os.environ["HOPS_LANDING"]), root, "first")


def second(spark: SparkSession, root: str) -> None:
    """Write words in upper case."""
    _run(_table(spark, root, "first").withColumn("word", F.upper("word")), root, "second")


def third(spark: SparkSession, root: str) -> None:
    """Keep every other row."""
    _run(_table(spark, root, "second").where("id % 2 = 0"), root, "third")


def _table(spark: SparkSession, root: str, name: str) -> DataFrame:
    return spark.readStream.format("delta").load(f"{root}/{name}")


def _run(rows: DataFrame, root: str, name: str) -> None:
    """Run a query into the table of its name until it has read what there is."""
    writer = rows.writeStream.format("delta").option("checkpointLocation", f"{root}/{name}.checkpoint")
    writer.trigger(availableNow=True).start(f"{root}/{name}").awaitTermination()


def main() -> None:
    """Run the hops."""
    builder = SparkSession.builder
    for key, value in json.loads(os.environ["HOPS_CONFS"]).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for hop in (first, second, third):
        hop(spark, sys.argv[1])
    spark.stop()


if __name__ == "__main__":
    main()

"""The three hops in plain PySpark: `python by_hand.py FOLDER` runs each query until it has read what there is."""

import json
import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

LANDING = os.environ["HOPS_LANDING"]
ROOT = sys.argv[1]


def run(rows: DataFrame, name: str) -> None:
    """Run a query into the table of its name."""
    writer = rows.writeStream.format("delta").option("checkpointLocation", f"{ROOT}/{name}.checkpoint")
    writer.trigger(availableNow=True).start(f"{ROOT}/{name}").awaitTermination()


builder = SparkSession.builder
for key, value in json.loads(os.environ["HOPS_CONFS"]).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
run(spark.readStream.schema("id BIGINT, word STRING").json(LANDING), "first")
words = spark.readStream.format("delta").load(f"{ROOT}/first")
run(words.withColumn("word", F.upper("word")), "second")
run(spark.readStream.format("delta").load(f"{ROOT}/second").where("id % 2 = 0"), "third")
spark.stop()

"""The hops of `bench/increment/hops.py` by hand, in a process of its own: plain queries of Spark over the same files.

They have the confs of a run of Tidemill: the same checkpoint manager, log store and state. The settings come from
tidemill.toml: `python -m bench.object_store.by_hand TARGET`, in its folder.
"""

import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidemill import QueryOptions
from tidemill.engines.launch import application_confs, jars_of_store, start
from tidemill.target.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession


def hops(spark: "SparkSession", lake: str) -> "Iterator[tuple[str, DataFrame]]":
    """Yield each hop and its rows."""
    files = (
        spark.readStream.name("rows")
        .format("json")
        .schema("id BIGINT, word STRING")
        .load(os.environ["HOPS_LANDING"])
    )
    yield "first", files
    first = spark.readStream.name("first").format("delta").load(f"{lake}/hand/first")
    yield "second", first.withColumn("word", F.upper("word"))
    second = spark.readStream.name("second").format("delta").load(f"{lake}/hand/second")
    yield "third", second.where("id % 2 = 0")


def main(name: str) -> None:
    """Run each hop to its end, one after another."""
    target = resolve(name)
    spark = start(application_confs(target.spark, little=True), last=jars_of_store(target.spark))
    for key, value in QueryOptions().confs(default_partitions=2).items():
        spark.conf.set(key, value)
    lake = target.lake.uri
    for hop, rows in hops(spark, lake):
        writer = rows.writeStream.format("delta").trigger(availableNow=True)
        writer.option("checkpointLocation", f"{lake}/hand-checkpoints/{hop}").start(
            f"{lake}/hand/{hop}"
        ).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])

"""The three hops in Tidemill: JSON files, and two Delta tables after another."""

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill import DeltaAppend, FileSource, Pipeline

LANDING = os.environ["HOPS_LANDING"]
hops = Pipeline("hops")


@hops.stream(
    source=FileSource(path=LANDING, format="json", schema="id BIGINT, word STRING"), sink=DeltaAppend()
)
def first(rows: DataFrame) -> DataFrame:
    """Keep the rows as they are."""
    return rows


@hops.stream(source=first, sink=DeltaAppend())
def second(rows: DataFrame) -> DataFrame:
    """Write words in upper case."""
    return rows.withColumn("word", F.upper("word"))


@hops.stream(source=second, sink=DeltaAppend())
def third(rows: DataFrame) -> DataFrame:
    """Keep every other row."""
    return rows.where("id % 2 = 0")

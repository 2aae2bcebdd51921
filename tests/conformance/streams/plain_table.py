"""A query of plain Spark from a table to another one, by their names: `python plain_table.py FROM TO CHECKPOINT`."""

import json
import sys

from tests.support.small import SMALL
from tidemill.engines.engine import SparkEngine
from tidemill.target.spark_settings import SparkSettings


def main() -> None:
    """Copy the rows of one table into the other one."""
    settings = SparkSettings(master="local[1]", driver_memory="1g", shuffle_partitions=2, conf=SMALL)
    engine = SparkEngine(settings)
    spark = engine.new()
    ours, copied, checkpoint = sys.argv[1:]
    spark.sql(f"CREATE TABLE ours USING delta LOCATION '{ours}'")
    spark.sql(f"CREATE TABLE copied (id STRING, n BIGINT) USING delta LOCATION '{copied}'")
    rows = spark.readStream.table("ours").select("id", "n")
    query = rows.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    query.toTable("copied", format="delta").awaitTermination()
    count = spark.table("copied").count()
    for name in ("ours", "copied"):
        spark.sql(f"DROP TABLE {name}")
    engine.stop()
    sys.stdout.write(f"RESULT {json.dumps(count)}\n")


if __name__ == "__main__":
    main()

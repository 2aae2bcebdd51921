"""What the batch assets of this project share: reports in the lake, written on the session of the streams."""

from typing import TYPE_CHECKING

from tidemill.orchestration import SparkResource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def replace_report(spark: SparkResource, name: str, rows: "DataFrame") -> tuple[str, int]:
    """Replace the whole Delta table of a report, and return its address and the number of its rows.

    Args:
        spark: Spark and the target.
        name: `<pipeline>/<report>`; the table is in `reports/` of the target's lake.
        rows: The rows.
    """
    uri = f"{spark.resolved_target.lake.uri}/reports/{name}"
    rows.write.format("delta").mode("overwrite").save(uri)
    return uri, spark.spark_session.read.format("delta").load(uri).count()

"""What the batch assets of this project share: reports in the lake, written on the session of the streams."""

from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.orchestration import SparkResource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def replace_report(spark: SparkResource, name: str, rows: "DataFrame") -> tuple[Path, int]:
    """Replace the whole Delta table of a report, and return its folder and the number of its rows.

    Args:
        spark: Spark and the target.
        name: `<pipeline>/<report>`; the table is in `reports/` of the target's lake.
        rows: The rows.
    """
    path = spark.resolved_target.lake.root / "reports" / name
    rows.write.format("delta").mode("overwrite").save(str(path))
    return path, spark.spark_session.read.format("delta").load(str(path)).count()

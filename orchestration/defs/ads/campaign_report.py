"""A batch asset downstream of streams: SQL on the session that the streams use, whenever their rows have moved."""

from typing import TYPE_CHECKING

from dagster import AutomationCondition, Definitions, MaterializeResult, MetadataValue, asset, definitions

from resources.spark import replace_report
from tidemill.orchestration import SparkResource
from tidemill.target.resolve import resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY = """
    SELECT
        date(event_time) AS day,
        coalesce(campaign_id, '(none)') AS campaign_id,
        count(*) AS impressions,
        count(click_id) AS clicks,
        sum(cost_micros) AS spend_micros
    FROM {attribution}
    GROUP BY ALL
"""


def report_of(attribution: "DataFrame") -> "DataFrame":
    """Return impressions, clicks and spend of each campaign on each day; `(none)` stands for ads without one."""
    return attribution.sparkSession.sql(QUERY, attribution=attribution)


@asset(
    key_prefix="ads",
    deps=[["ads", "attribution"]],
    group_name="ads",
    kinds={"spark", "deltalake"},
    # A run that leaves the stream idle does not materialize it, so it does not start this asset.
    automation_condition=AutomationCondition.eager(),
)
def campaign_report(spark: SparkResource) -> MaterializeResult[None]:
    """Impressions, clicks and spend of each campaign on each day.

    Every run replaces the whole report, so a repeated run changes nothing.
    """
    path, rows = replace_report(spark, "ads/campaign_report", report_of(spark.read("ads/attribution")))
    return MaterializeResult(metadata={"dagster/row_count": rows, "path": MetadataValue.path(path)})


@definitions
def report_definitions() -> Definitions:
    """Return the report where the target has the pipeline `ads`."""
    return Definitions(assets=[campaign_report] if "ads" in resolve().pipelines().pipelines else [])

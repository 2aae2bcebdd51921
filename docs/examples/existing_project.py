"""The definitions of an existing Dagster project, with the pipelines of two targets of tidemill.toml merged in."""

from dagster import AssetExecutionContext, Definitions, asset

from tidemill.orchestration import SparkResource, build_definitions


@asset(deps=[["prod", "ads", "campaign_totals"]], required_resource_keys={"prod__spark"})
def budget_report(context: AssetExecutionContext) -> None:
    """Compute the spend of all campaigns, from the table of a stream."""
    spark: SparkResource = context.resources.prod__spark
    spend = spark.read("ads/campaign_totals").groupBy().sum("spend_micros").first()
    context.log.info("spend: %s", spend)


existing = Definitions(assets=[budget_report])

defs = Definitions.merge(
    existing,
    build_definitions("dev", key_prefix="dev"),
    build_definitions("prod", key_prefix="prod", pipelines=["ads"]),
)

"""Attribute clicks and campaigns to impressions."""

from typing import TYPE_CHECKING

from pipelines.ads.deduplicate import unique_clicks, unique_impressions
from pipelines.ads.ingest import campaigns
from pipelines.ads.pipeline import ads
from tidemill import BackfillBy, DeltaAppend, Expect
from tidemill import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_campaign(impressions: "DataFrame", campaigns: "DataFrame") -> "DataFrame":
    """Add `campaign_id` and `campaign` of the version that was valid at each impression's event time.

    Versions of an ad do not overlap, so each impression has one row. If no version was valid, both columns are
    null. A change is announced before the events that it applies to, so every later snapshot of the campaigns
    gives the same result.
    """
    versions = campaigns.select("ad_id", "campaign_id", "campaign", "__START_AT", "__END_AT")
    valid = (
        (impressions["ad_id"] == versions["ad_id"])
        & (impressions["event_time"] >= versions["__START_AT"])
        & (versions["__END_AT"].isNull() | (impressions["event_time"] < versions["__END_AT"]))
    )
    return impressions.join(versions, valid, "left").drop(versions["ad_id"]).drop("__START_AT", "__END_AT")


@ads.stream(
    source={
        "impressions": unique_impressions.with_watermark("event_time", "2 hours"),
        "clicks": unique_clicks.with_watermark("click_time", "2 hours"),
        "campaigns": campaigns.static(),
    },
    sink=DeltaAppend(),
    expect=[Expect("campaign_known", "campaign_id IS NOT NULL", on_violation="warn")],
    backfill_by=BackfillBy("event_time", every="day", since="2025-12-01"),
)
def attribution(impressions: "DataFrame", clicks: "DataFrame", campaigns: "DataFrame") -> "DataFrame":
    """Each impression with the click on it within the following hour, and with its campaign at that time.

    A clicked impression is emitted when its click arrives. An impression without a click is emitted when no click
    on it can arrive anymore: three hours of event time later, the hour plus the watermark. The campaign of an
    impression is null if its ad was in none.
    """
    on_impressions = clicks.select("click_id", "click_time", F.col("impression_id").alias("clicked_id"))
    within_the_hour = (
        (F.col("impression_id") == F.col("clicked_id"))
        & (F.col("click_time") >= F.col("event_time"))
        & (F.col("click_time") <= F.col("event_time") + F.expr("INTERVAL 1 HOUR"))
    )
    clicked = impressions.join(on_impressions, within_the_hour, "left").drop("clicked_id")
    return with_campaign(clicked, campaigns).select(
        "impression_id",
        "ad_id",
        "user_id",
        "page",
        "cost_micros",
        "event_time",
        "click_id",
        "click_time",
        "campaign_id",
        "campaign",
    )

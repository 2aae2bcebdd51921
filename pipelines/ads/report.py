"""Reports: campaigns per minute and in total, and the sessions of users."""

from typing import TYPE_CHECKING

from pipelines.ads.attribute import with_campaign
from pipelines.ads.deduplicate import unique_impressions
from pipelines.ads.ingest import campaigns
from pipelines.ads.pipeline import ads
from tidemill import BackfillBy, DeltaAppend, DeltaMerge, QueryOptions
from tidemill import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NO_CAMPAIGN = "(none)"


def _campaign_or_none() -> "Column":
    # Impressions of ads without a campaign are reported under their own name, so that the reports add up to the
    # total spend and the key of a merge is never null.
    return F.coalesce("campaign_id", F.lit(NO_CAMPAIGN)).alias("campaign_id")


@ads.stream(
    source={
        "impressions": unique_impressions.with_watermark("event_time", "2 hours"),
        "campaigns": campaigns.static(),
    },
    sink=DeltaAppend(),
    backfill_by=BackfillBy("minute", every="day", since="2025-12-01"),
)
def campaign_minutes(impressions: "DataFrame", campaigns: "DataFrame") -> "DataFrame":
    """Impressions and spend of each campaign in each minute, once the minute is over.

    A minute is over when the watermark, two hours behind the newest impression, has passed its end.
    Impressions of ads without a campaign are reported under `(none)`.
    """
    return (
        with_campaign(impressions, campaigns)
        .groupBy(F.window("event_time", "1 minute"), _campaign_or_none())
        .agg(F.count("*").alias("impressions"), F.sum("cost_micros").alias("spend_micros"))
        .select(
            F.col("window.start").alias("minute"),
            "campaign_id",
            "impressions",
            "spend_micros",
        )
    )


@ads.stream(
    source={"impressions": unique_impressions, "campaigns": campaigns.static()},
    # A running count only grows, so the row with the higher count is the newer one.
    sink=DeltaMerge(keys=["campaign_id"], sequence_by="impressions"),
    query=QueryOptions(output_mode="update"),
)
def campaign_totals(impressions: "DataFrame", campaigns: "DataFrame") -> "DataFrame":
    """Impressions and spend of each campaign so far; `(none)` stands for ads without a campaign."""
    return (
        with_campaign(impressions, campaigns)
        .groupBy(_campaign_or_none())
        .agg(F.count("*").alias("impressions"), F.sum("cost_micros").alias("spend_micros"))
    )


@ads.stream(
    source=unique_impressions.with_watermark("event_time", "2 hours"),
    sink=DeltaAppend(),
    backfill_by="session_start",
)
def user_sessions(impressions: "DataFrame") -> "DataFrame":
    """Each user's sessions, once they are over: 30 minutes without an impression end a session.

    `session_start` is the time of the first impression, `session_end` is the time of the last one plus 30 minutes.
    """
    return (
        impressions.groupBy("user_id", F.session_window("event_time", "30 minutes").alias("session"))
        .agg(F.count("*").alias("impressions"), F.sum("cost_micros").alias("spend_micros"))
        .select(
            "user_id",
            F.col("session.start").alias("session_start"),
            F.col("session.end").alias("session_end"),
            "impressions",
            "spend_micros",
        )
    )

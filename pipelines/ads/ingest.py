"""Ingest the feeds into tables; invalid records go to quarantine with their raw text."""

from typing import TYPE_CHECKING

from pipelines.ads.pipeline import ads
from tidemill import BackfillBy, DeltaAppend, DeltaMerge, Feed, Json
from tidemill import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IMPRESSION = """
    impression_id STRING,
    ad_id STRING,
    user_id STRING,
    page STRING,
    cost_micros BIGINT,
    event_time TIMESTAMP
"""
CLICK = """
    click_id STRING,
    impression_id STRING,
    ad_id STRING,
    user_id STRING,
    click_time TIMESTAMP
"""
CAMPAIGN_CHANGE = """
    ad_id STRING,
    campaign_id STRING,
    campaign STRING,
    op STRING,
    seq BIGINT,
    changed_at TIMESTAMP
"""


# A rule that evaluates to NULL is violated: `ad_id <> ''` quarantines a record whose id is missing, null or empty.
@ads.stream(
    source=Feed(
        "ad-impressions",
        format=Json(IMPRESSION),
        rules={
            "has_impression_id": "impression_id <> ''",
            "has_ad_id": "ad_id <> ''",
            "has_user_id": "user_id <> ''",
            "has_event_time": "event_time IS NOT NULL",
            "cost_not_negative": "cost_micros >= 0",
        },
        max_records_per_batch=200_000,
    ),
    sink=DeltaAppend(partition_by=["event_date"]),
    backfill_by=BackfillBy("event_date", every="day", since="2025-12-01"),
)
def impressions(events: "DataFrame") -> "DataFrame":
    """Every impression as it was reported, one row per report.

    An impression that was sent twice has two rows; `unique_impressions` has each one once.
    """
    return events.withColumn("event_date", F.to_date("event_time"))


@ads.stream(
    source=Feed(
        "ad-clicks",
        format=Json(CLICK),
        rules={
            "has_click_id": "click_id <> ''",
            "has_impression_id": "impression_id <> ''",
            "has_click_time": "click_time IS NOT NULL",
        },
        max_records_per_batch=200_000,
    ),
    sink=DeltaAppend(),
    backfill_by=BackfillBy("click_time", every="day", since="2025-12-01"),
)
def clicks(events: "DataFrame") -> "DataFrame":
    """Every click as it was reported, one row per report, with the id of the clicked impression."""
    return events


@ads.stream(
    source=Feed(
        "ad-campaigns",
        format=Json(CAMPAIGN_CHANGE),
        rules={
            "has_ad_id": "ad_id <> ''",
            "has_seq": "seq IS NOT NULL",
            "has_changed_at": "changed_at IS NOT NULL",
            "op_known": "op IN ('upsert', 'delete')",
            "has_campaign_id": "op = 'delete' OR campaign_id <> ''",
        },
    ),
    sink=DeltaMerge(
        keys=["ad_id"],
        sequence_by="seq",
        apply_as_deletes="op = 'delete'",
        except_columns=["op"],
        scd_type=2,
        valid_by="changed_at",
    ),
)
def campaigns(changes: "DataFrame") -> "DataFrame":
    """Each ad's campaigns over time, one row per version, valid from `__START_AT` until before `__END_AT`.

    An ad that was removed from its campaign has no version until it joins another one.
    """
    return changes

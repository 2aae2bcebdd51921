"""Each impression and each click once.

Feeds deliver at least once. An id that arrives again within two hours of event time is the same event. After that
Spark has dropped it from the state, which keeps the state small (Spark guide, "Streaming Deduplication").
"""

from typing import TYPE_CHECKING

from pipelines.ads.ingest import clicks, impressions
from pipelines.ads.pipeline import ads
from tidemill import BackfillBy, DeltaAppend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@ads.stream(
    source=impressions.with_watermark("event_time", "2 hours"),
    sink=DeltaAppend(),
    backfill_by=BackfillBy("event_date", every="day", since="2025-12-01"),
)
def unique_impressions(impressions: "DataFrame") -> "DataFrame":
    """Each impression once. One that arrives more than two hours late is dropped and counted as late."""
    return impressions.dropDuplicatesWithinWatermark(["impression_id"])


@ads.stream(
    source=clicks.with_watermark("click_time", "2 hours"),
    sink=DeltaAppend(),
    backfill_by=BackfillBy("click_time", every="day", since="2025-12-01"),
)
def unique_clicks(clicks: "DataFrame") -> "DataFrame":
    """Each click once. One that arrives more than two hours late is dropped and counted as late."""
    return clicks.dropDuplicatesWithinWatermark(["click_id"])

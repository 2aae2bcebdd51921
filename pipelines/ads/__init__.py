"""The pipeline that ships with Tidemill: impressions and clicks, from raw events to campaign reports.

Read the modules in the order of the data: `ingest`, `deduplicate`, `attribute`, `report`, `frequency`.
`generate` creates events to try the pipeline with.
"""

from pipelines.ads.attribute import attribution
from pipelines.ads.deduplicate import unique_clicks, unique_impressions
from pipelines.ads.frequency import frequency_alerts
from pipelines.ads.ingest import campaigns, clicks, impressions
from pipelines.ads.pipeline import ads
from pipelines.ads.report import campaign_minutes, campaign_totals, user_sessions

__all__ = [
    "ads",
    "attribution",
    "campaign_minutes",
    "campaign_totals",
    "campaigns",
    "clicks",
    "frequency_alerts",
    "impressions",
    "unique_clicks",
    "unique_impressions",
    "user_sessions",
]

"""Ingest the feed `new_pipeline-events` into a table; invalid records go to quarantine."""

from typing import TYPE_CHECKING

from tidemill import DeltaAppend, Feed, Json
from tidemill import functions as F

from pipelines.new_pipeline.pipeline import new_pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# The target binds the feed to a topic or a folder. On `dev` it is the folder .tidemill/landing/new_pipeline-events/.
@new_pipeline.stream(
    source=Feed(
        "new_pipeline-events",
        format=Json("event_id STRING, amount BIGINT, event_time TIMESTAMP"),
        rules={"has_id": "event_id <> ''", "positive": "amount > 0"},
    ),
    sink=DeltaAppend(partition_by=["event_date"]),
)
def events(records: "DataFrame") -> "DataFrame":
    """Every event, one row each."""
    return records.withColumn("event_date", F.to_date("event_time"))

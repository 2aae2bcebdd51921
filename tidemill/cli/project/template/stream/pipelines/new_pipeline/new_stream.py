"""The stream `new_pipeline/new_stream`."""

from typing import TYPE_CHECKING

from tidemill import DeltaAppend, Feed, Json

from pipelines.new_pipeline.pipeline import new_pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@new_pipeline.stream(
    source=Feed(
        "new_pipeline-new_stream",
        format=Json("id STRING, value DOUBLE"),
        rules={"has_id": "id <> ''"},
    ),
    sink=DeltaAppend(),
)
def new_stream(records: "DataFrame") -> "DataFrame":
    """Every record, one row each."""
    return records

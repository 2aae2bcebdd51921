"""The quarantine of a feed: a table with the text and the origin of each record that its rules refuse."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.streaming.columns import ORIGIN, RAW, VIOLATED
from pipelines.streaming.sinks.sink import Transaction

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipelines.streaming.records import StreamRecords

QUARANTINE = "quarantine"


def quarantine(
    records: "DataFrame", path: Path, *, generation: int, transaction: Transaction, replace: bool
) -> None:
    """Write the refused records of a batch in one commit.

    Args:
        records: The judged records of the batch.
        path: The table's folder.
        generation: The checkpoint's generation.
        transaction: The identity of the batch, under which Delta skips what the table has already.
        replace: Whether they replace those that an earlier attempt of the batch wrote under this identity, and that
            other rules may have refused.
    """
    from pyspark.sql import functions as F

    # The commit that replaces has no transaction, which Delta would skip.
    metadata = json.dumps({"tidemill": {"batch_id": transaction.version}})
    writer = (
        records.where(F.size(VIOLATED) > 0)
        .select(
            F.col(RAW).alias("raw"),
            F.col(VIOLATED).alias("violated"),
            F.col(ORIGIN).alias("origin"),
            F.lit(generation).alias("generation"),
            F.lit(transaction.version).cast("bigint").alias("batch_id"),
            F.current_timestamp().alias("quarantined_at"),
        )
        .write.format("delta")
        .option("userMetadata", metadata)
    )
    if replace:
        this_batch = f"generation = {int(generation)} AND batch_id = {int(transaction.version)}"
        writer = writer.mode("overwrite").option("replaceWhere", this_batch)
    else:
        writer = writer.mode("append").option("txnAppId", transaction.app_id)
        writer = writer.option("txnVersion", str(transaction.version))
    writer.save(str(path))


def has_quarantined(records: "StreamRecords", query_id: str, batch_id: int) -> bool:
    """Return whether a stream's quarantine has refused records of a batch."""
    table = records.sink_table(query_id, QUARANTINE)
    return table is not None and table.newest_batch >= batch_id


def record_counts() -> "list[Column]":
    """Return aggregates over judged lines: `rows_read`, `rows_blank` and `rows_quarantined`."""
    from pyspark.sql import functions as F

    is_record = F.col(VIOLATED).isNotNull()
    return [
        F.count_if(is_record).alias("rows_read"),
        F.count_if(~is_record).alias("rows_blank"),
        F.count_if(F.size(VIOLATED) > 0).alias("rows_quarantined"),
    ]

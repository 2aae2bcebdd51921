"""The quarantine of a feed: a table with the text and the origin of each record that its rules refuse."""

import json
from typing import TYPE_CHECKING

from tidemill.definitions.columns import ORIGIN, RAW, VIOLATED
from tidemill.definitions.sink import transaction_app_id

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidemill.records.stream_records import StreamRecords

QUARANTINE = "quarantine"
BUCKETS = "refused_buckets"

# Bounds what the driver and each task hold of a batch, however many of its records are refused.
_NUMBER_OF_BUCKETS = 1 << 18
_BUCKET = f"pmod(xxhash64({RAW}), {_NUMBER_OF_BUCKETS})"
_IS_REFUSED = f"size({VIOLATED}) > 0"


def quarantine(
    rows: "DataFrame",
    records: "StreamRecords",
    query_id: str,
    batch_id: int,
    *,
    generation: int,
    replace: bool = False,
) -> None:
    """Write the refused records of a batch in one commit, which Delta skips where the table has the batch already.

    Args:
        rows: The validated records of the batch.
        replace: Whether they replace those that an earlier attempt of the batch wrote, and that other rules may have
            refused.
    """
    from pyspark.sql import functions as F

    # The commit that replaces has no transaction, which Delta would skip.
    metadata = json.dumps({"tidemill": {"batch_id": batch_id}})
    writer = (
        rows.where(_IS_REFUSED)
        .select(
            F.col(RAW).alias("raw"),
            F.col(VIOLATED).alias("violated"),
            F.col(ORIGIN).alias("origin"),
            F.lit(generation).alias("generation"),
            F.lit(batch_id).cast("bigint").alias("batch_id"),
            F.current_timestamp().alias("quarantined_at"),
        )
        .write.format("delta")
        .option("userMetadata", metadata)
    )
    if replace:
        this_batch = f"generation = {int(generation)} AND batch_id = {int(batch_id)}"
        writer = writer.mode("overwrite").option("replaceWhere", this_batch)
    else:
        writer = writer.mode("append").option("txnAppId", transaction_app_id(query_id, QUARANTINE))
        writer = writer.option("txnVersion", str(batch_id))
    writer.save(records.table(QUARANTINE).uri)


def has_quarantined(records: "StreamRecords", query_id: str, batch_id: int) -> bool:
    """Return whether a stream's quarantine has refused records of a batch."""
    table = records.sink_table(query_id, QUARANTINE)
    return table is not None and table.has(batch_id)


def record_counts() -> "list[Column]":
    """Return aggregates over validated lines: `rows_read`, `rows_blank` and `rows_quarantined`."""
    from pyspark.sql import functions as F

    # Spark computes the condition of a `count_if` in a projection before the aggregate, which copies each row.
    return [
        F.expr(f"count(CASE WHEN {condition} THEN true END) AS {name}")
        for name, condition in (
            ("rows_read", f"{VIOLATED} IS NOT NULL"),
            ("rows_blank", f"{VIOLATED} IS NULL"),
            ("rows_quarantined", _IS_REFUSED),
        )
    ]


def refused_buckets() -> "Column":
    """Return an aggregate over validated lines: the buckets of the refused records, by a hash of their text.

    The records themselves could be as large as the batch. Most records are in none of these buckets, and whoever looks
    for the refused ones need not parse those again.
    """
    from pyspark.sql import functions as F

    return F.expr(f"to_json(collect_set(CASE WHEN {_IS_REFUSED} THEN {_BUCKET} END)) AS {BUCKETS}")


def of_buckets(lines: "DataFrame", buckets: str) -> "DataFrame":
    """Return the lines of some buckets.

    Args:
        lines: Lines with `_raw`.
        buckets: What `refused_buckets` returned.
    """
    from pyspark.sql import functions as F

    numbers = F.from_json(F.lit(buckets), "array<bigint>")
    wanted = lines.sparkSession.range(1).select(F.explode(numbers).alias("bucket"))
    return lines.join(F.broadcast(wanted), F.expr(f"{_BUCKET} = bucket"), "left_semi")

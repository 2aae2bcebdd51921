"""The quarantine of a stream: a table of what its rules refuse.

- `input`: records of its feed that cannot be parsed or violate a rule of the feed, with their text and origin.
- `output`: rows of its output that violate an expectation, as JSON.
"""

import json
from functools import reduce
from typing import TYPE_CHECKING

from tidemill.connectors.feed import feed_of
from tidemill.connectors.violations import IS_REFUSED
from tidemill.definitions.columns import ORIGIN, ORIGIN_TYPE, RAW, REFUSED_BY, VIOLATED
from tidemill.definitions.sink import transaction_app_id
from tidemill.run.batch.row_json import has_origin, json_columns, row_as_json
from tidemill.text.names import QUARANTINE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame

    from tidemill.definitions.stream import Stream
    from tidemill.records.stream_records import StreamRecords

INPUT, OUTPUT = "input", "output"
"""The kinds of what is in a quarantine."""
KIND = "kind"
"""The column with the kind; NULL, or missing, stands for `input` in tables of earlier releases."""
BUCKETS = "refused_buckets"

# Bounds what the driver and each task hold of a batch, however many of its records are refused.
_NUMBER_OF_BUCKETS = 1 << 18
_BUCKET = f"pmod(xxhash64({RAW}), {_NUMBER_OF_BUCKETS})"
_IS_REFUSED = f"size({VIOLATED}) > 0"


def has_quarantine(stream: "Stream") -> bool:
    """Return whether a stream declares rules that send records or rows to quarantine."""
    return feed_of(stream) is not None or stream.quarantines_rows


def refused_records(validated: "DataFrame") -> "DataFrame":
    """Return the refused ones among validated records, as the quarantine has them."""
    from pyspark.sql import functions as F

    return validated.where(_IS_REFUSED).select(
        F.col(RAW).alias("raw"),
        F.col(VIOLATED).alias("violated"),
        F.col(ORIGIN).alias("origin"),
        F.lit(INPUT).alias(KIND),
    )


def refused_rows(output: "DataFrame", *kept: "Column") -> "DataFrame":
    """Return the refused ones among rows with their refusals, as the quarantine has them.

    Args:
        kept: Further columns of them to keep.
    """
    from pyspark.sql import functions as F

    schema = output.schema
    origin = F.col(ORIGIN) if has_origin(schema) else F.lit(None).cast(ORIGIN_TYPE)
    return output.where(IS_REFUSED).select(
        row_as_json(json_columns(schema)).alias("raw"),
        F.col(REFUSED_BY).alias("violated"),
        origin.alias("origin"),
        F.lit(OUTPUT).alias(KIND),
        *kept,
    )


def with_kind(entries: "DataFrame") -> "DataFrame":
    """Return the rows of a quarantine table with the kind of each: a table of an earlier release has none."""
    from pyspark.sql import functions as F

    known = F.col(KIND) if KIND in entries.columns else F.lit(None).cast("string")
    return entries.withColumn(KIND, F.coalesce(known, F.lit(INPUT)))


def of_kind(entries: "DataFrame", kind: str) -> "DataFrame":
    """Return what is of a kind in a quarantine."""
    from pyspark.sql import functions as F

    return entries.where(F.col(KIND) == kind)


def united(parts: "Iterable[DataFrame]") -> "DataFrame":
    """Return the rows of several DataFrames with the same columns, of which there is at least one."""
    return reduce(lambda one, other: one.unionByName(other), parts)


def quarantine(
    refused: "DataFrame",
    records: "StreamRecords",
    query_id: str,
    batch_id: int,
    *,
    generation: int,
    replace: bool = False,
) -> None:
    """Write what a batch refused in one commit, which Delta skips where the table has the batch already.

    Args:
        refused: What `refused_records` and `refused_rows` returned for the batch.
        replace: Whether it replaces what an earlier attempt of the batch wrote, which other rules may have refused.
    """
    from pyspark.sql import functions as F

    # The commit that replaces has no transaction, which Delta would skip.
    metadata = json.dumps({"tidemill": {"generation": generation, "batch_id": batch_id}})
    writer = (
        refused.select(
            "raw",
            "violated",
            "origin",
            F.lit(generation).alias("generation"),
            F.lit(batch_id).cast("bigint").alias("batch_id"),
            F.current_timestamp().alias("quarantined_at"),
            KIND,
        )
        .write.format("delta")
        .option("userMetadata", metadata)
        .option("mergeSchema", "true")  # a table of an earlier release has no kinds
    )
    if replace:
        this_batch = f"generation = {int(generation)} AND batch_id = {int(batch_id)}"
        writer = writer.mode("overwrite").option("replaceWhere", this_batch)
    else:
        writer = writer.mode("append").option("txnAppId", transaction_app_id(query_id, QUARANTINE))
        writer = writer.option("txnVersion", str(batch_id))
    writer.save(records.table(QUARANTINE).uri)


def has_quarantined(records: "StreamRecords", query_id: str, batch_id: int) -> bool:
    """Return whether a stream's quarantine has a batch."""
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

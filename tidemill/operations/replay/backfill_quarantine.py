"""The quarantine of a feed after a range was computed again: every record is in the table or here, and never in both.

A line of a file has no identity but its text, so records are compared as a multiset of text and origin. Whether the
row of a record is in the range is known only by computing it.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from tidemill.connectors.connector import Reading
from tidemill.connectors.feed import feed_of
from tidemill.connectors.files.backlog import plain_path
from tidemill.connectors.registry import resolved
from tidemill.definitions.columns import ORIGIN, RAW, VIOLATED
from tidemill.run.spark.classic import local_checkpoint
from tidemill.text.names import sql_identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidemill.connectors.answers import SourceSpan
    from tidemill.definitions.stream import Stream
    from tidemill.operations.replay.backfill_range import BackfillRange
    from tidemill.records.stream_records import StreamRecords
    from tidemill.target.target import Target

_KEY, _NUMBER, _ID = "_key", "_number", "_id"
_SAME = [_KEY, _NUMBER]


def sorted_quarantine(
    stream: "Stream", span: "BackfillRange", live: "DataFrame | None", staged: "DataFrame | None"
) -> "DataFrame | None":
    """Return the records of a quarantine after a range was replaced; None where there are none, and were none.

    A record that was refused and passes now leaves the quarantine if its row is in the range: the range has it then. A
    record that passed and is refused now enters it if its row was in the range, or if nobody can know that.

    Args:
        stream: The stream, which ingests a feed.
        live: The records in quarantine; None where there is no such table.
        staged: Those that are refused now, of everything that was read; None likewise.
    """
    if live is None:
        return (
            None
            if staged is None
            else _of_range(stream, span, _numbered(staged), or_unknown=True).drop(*_SAME)
        )
    before = _numbered(live)
    if staged is None:
        return before.join(_of_range(stream, span, before), _SAME, "left_anti").drop(*_SAME)
    now = _numbered(staged)
    passing, refused = before.join(now, _SAME, "left_anti"), now.join(before, _SAME, "left_anti")
    kept = before.join(_of_range(stream, span, passing), _SAME, "left_anti")
    return kept.unionByName(_of_range(stream, span, refused, or_unknown=True)).drop(*_SAME)


def divided(
    live: "DataFrame", stream: "Stream", target: "Target", staged: "StreamRecords"
) -> "tuple[DataFrame, DataFrame]":
    """Return the records in quarantine that came from what a backfill has read, and the others.

    Args:
        live: The records in quarantine.
        stream: The stream, which ingests a feed.
        staged: The records of the backfill's stream, which has read a part of the feed.
    """
    snapshot = staged.snapshot()
    committed = snapshot.tail.committed_offsets
    (offset,) = () if committed is None else committed.sources
    (source,) = stream.sources.values()
    connector, _ = resolved(source, target)
    reading = Reading(target=target, name=offset.key, offset=offset, checkpoint=snapshot.checkpoint)
    condition = _came_from(live, connector.span_read(reading))
    return live.where(condition), live.where(~condition)


def _came_from(records: "DataFrame", read: "SourceSpan") -> "Column":
    from pyspark.sql import functions as F

    files = {plain_path(file.path) for file in read.files or ()}
    addresses = [address for (address,) in records.select("origin.file").distinct().collect()]
    of_files = [address for address in addresses if address is not None and plain_path(address) in files]
    condition = F.coalesce(F.col("origin.file").isin(of_files), F.lit(False))
    begins = read.begins or {}
    for (topic, number), end in (read.ends or {}).items():
        of_partition = (F.col("origin.topic") == topic) & (F.col("origin.partition") == number)
        in_part = (F.col("origin.offset") >= begins.get((topic, number), 0)) & (F.col("origin.offset") < end)
        condition |= F.coalesce(of_partition & in_part, F.lit(False))
    return condition


def _numbered(records: "DataFrame") -> "DataFrame":
    """Return records with a key of text and origin, and a number among those of the same key."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keyed = records.withColumn(_KEY, F.to_json(F.struct("raw", "origin")))
    return keyed.withColumn(_NUMBER, F.row_number().over(Window.partitionBy(_KEY).orderBy("batch_id")))


def _of_range(
    stream: "Stream", span: "BackfillRange", records: "DataFrame", *, or_unknown: bool = False
) -> "DataFrame":
    """Return the records whose rows are in the range.

    Args:
        records: The records, numbered.
        or_unknown: Whether records without a row, or with a row without a value, count as well.
    """
    from pyspark.sql import functions as F

    # The id stands for the offset in the origin, which passes through the function.
    fixed = local_checkpoint(records.withColumn(_ID, F.monotonically_increasing_id()))
    origin = F.col("origin").withField("offset", F.col(_ID)).alias(ORIGIN)
    spark = records.sparkSession
    ansi = spark.conf.get("spark.sql.ansi.enabled")
    # A refused record may have a value that the function cannot convert: its row is unknown then.
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        rows = None
        with suppress(Exception):  # the same for what a Python function raises
            feed = feed_of(stream)
            validated = feed.validated(fixed.select(F.col("raw").alias(RAW), origin))  # type: ignore[union-attr]
            rows = stream(validated.drop(RAW, VIOLATED)).select(
                F.col(f"{ORIGIN}.offset").alias(_ID), sql_identifier(span.column)
            )
            rows = local_checkpoint(rows)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(ansi))
    if rows is None:
        return fixed.drop(_ID).where(F.lit(or_unknown))
    if not or_unknown:
        return fixed.join(rows.where(span.condition).select(_ID).distinct(), _ID, "left_semi").drop(_ID)
    column = F.col(sql_identifier(span.column))
    elsewhere = rows.where(column.isNotNull() & ~F.expr(span.condition)).select(_ID).distinct()
    return fixed.join(elsewhere, _ID, "left_anti").drop(_ID)

"""The quarantine after a range was computed again: every record and row is in the table or here, and never in both.

A line of a file has no identity but its text, so records are compared as a multiset of text and origin. Whether the
row of a record is in the range is known only by computing it. A row of the output has the column of the range itself.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from tidemill.connectors.connector import Reading
from tidemill.connectors.feed import feed_of
from tidemill.connectors.files.addresses import plain_path
from tidemill.connectors.registry import resolved
from tidemill.definitions.columns import ORIGIN, RAW, VIOLATED
from tidemill.run.batch.quarantine import INPUT, OUTPUT, of_kind, united, with_kind
from tidemill.run.batch.row_json import part_of_json
from tidemill.run.batch.writer import batch_column
from tidemill.run.spark.classic import local_checkpoint
from tidemill.text.names import QUARANTINE, sql_identifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from tidemill.connectors.answers import SourceSpan
    from tidemill.definitions.sink import TableSink
    from tidemill.definitions.stream import Stream
    from tidemill.operations.replay.backfill_range import BackfillRange
    from tidemill.operations.replay.range_tables import RangeTables
    from tidemill.records.stream_records import StreamRecords
    from tidemill.target.target import Target

_KEY, _NUMBER, _ID, _ROW = "__tidemill_key", "__tidemill_number", "__tidemill_id", "__tidemill_row"
_SAME = [_KEY, _NUMBER]


def quarantine_after(
    stream: "Stream", target: "Target", tables: "RangeTables", *, is_part: bool
) -> "DataFrame | None":
    """Return what is in a stream's quarantine after a range was replaced; None where nothing is and was.

    Args:
        tables: The tables of which the range is replaced.
        is_part: Whether only a part of a source was read.
    """
    live, staged = _entries(tables, tables.live), _entries(tables, tables.staged)
    if staged is not None:
        last = tables.live.snapshot().last_commit
        staged = staged.withColumn("batch_id", batch_column(0, last)["batch_id"])
    is_feed = feed_of(stream) is not None
    parts: list[DataFrame | None] = []
    if live is not None and is_feed and is_part:
        live, unread = _divided(live, stream, target, tables.staged)
        parts.append(unread)
    (inputs, rows), (staged_inputs, staged_rows) = _kinds(live), _kinds(staged)
    parts += [
        _sorted_records(stream, tables.span, inputs, staged_inputs) if is_feed else inputs,
        _replaced_rows(tables, stream.main, rows, staged_rows),
    ]
    return _union(parts)


def _entries(tables: "RangeTables", records: "StreamRecords") -> "DataFrame | None":
    table = records.table(QUARANTINE)
    return None if table.open() is None else with_kind(table.read(tables.spark))


def _kinds(entries: "DataFrame | None") -> "tuple[DataFrame | None, DataFrame | None]":
    return (None, None) if entries is None else (of_kind(entries, INPUT), of_kind(entries, OUTPUT))


def _union(parts: "Sequence[DataFrame | None]") -> "DataFrame | None":
    there = [part for part in parts if part is not None]
    return united(there) if there else None


def _replaced_rows(
    tables: "RangeTables", sink: "TableSink", live: "DataFrame | None", staged: "DataFrame | None"
) -> "DataFrame | None":
    """Return the rows of the output in a quarantine after a range was replaced: of the range, the staged ones.

    A row without a value of the column, or of the key, is in no range, and stays.

    Args:
        tables: The tables of which the range is replaced.
        sink: The sink of the main table.
        live: The rows in quarantine; None where there is no such table.
        staged: Those that are refused now, of everything that was read; None likewise.
    """
    parts = []
    if live is not None:
        rows = _with_id(live)
        parts.append(rows.join(_ids_in_range(tables, sink, rows), _ID, "left_anti").drop(_ID))
    if staged is not None:
        rows = _with_id(staged)
        parts.append(rows.join(_ids_in_range(tables, sink, rows), _ID, "left_semi").drop(_ID))
    return _union(parts)


def _with_id(rows: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    return local_checkpoint(rows.withColumn(_ID, F.monotonically_increasing_id()))


def _ids_in_range(tables: "RangeTables", sink: "TableSink", rows: "DataFrame") -> "DataFrame":
    """Return the ids of those rows in quarantine that the range has, by their own columns."""
    parsed = rows.select(_ID, part_of_json("raw", tables.selecting(sink)).alias(_ROW))
    return tables.of_range(sink, parsed.select(_ID, f"{_ROW}.*")).select(_ID)


def _sorted_records(
    stream: "Stream", span: "BackfillRange", live: "DataFrame | None", staged: "DataFrame | None"
) -> "DataFrame | None":
    """Return the records of a feed in a quarantine after a range was replaced; None where there is no table.

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


def _divided(
    live: "DataFrame", stream: "Stream", target: "Target", staged: "StreamRecords"
) -> "tuple[DataFrame, DataFrame]":
    """Return what in quarantine came from what a backfill has read, or has no origin; and the rest.

    Args:
        live: The records and rows in quarantine.
        stream: The stream, which ingests a feed.
        staged: The records of the backfill's stream, which has read a part of the feed.
    """
    snapshot = staged.snapshot()
    committed = snapshot.tail.committed_offsets
    (offset,) = () if committed is None else committed.sources
    (source,) = stream.sources.values()
    connector, _ = resolved(source, target)
    reading = Reading(target=target, name=offset.key, offset=offset, checkpoint=snapshot.checkpoint)
    from pyspark.sql import functions as F

    condition = _came_from(live, connector.span_read(reading)) | F.col("origin").isNull()
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

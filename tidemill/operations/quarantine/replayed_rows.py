"""What is in a quarantine under today's schema and rules: the verdict, and the rows of what passes.

A record of the feed is parsed, validated, and goes through the function. A row of the output is what the function
returned: it is read from its JSON and meets the expectations. What no replay can move stays as it is: see `held`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidemill.connectors.feed import feed_of
from tidemill.connectors.violations import counts, kept, passing, refused_count, with_refusals
from tidemill.definitions.columns import (
    BATCH,
    ORIGIN,
    RAW,
    REFUSED_BY,
    TABLE_COLUMNS,
    VIOLATED,
    refuse_reserved,
)
from tidemill.definitions.expectations import COLUMNS_CHANGED
from tidemill.operations.quarantine.replay_plan import Verdict
from tidemill.run.batch.quarantine import INPUT, KIND, OUTPUT, of_kind, refused_rows, united
from tidemill.run.batch.row_json import json_columns, row_of_json
from tidemill.run.batch.writer import batch_column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tidemill.connectors.feed import Feed
    from tidemill.definitions.stream import Stream
    from tidemill.storage.table_ref import TableRef

_REFUSED, _ROW, _LOST = "__tidemill_refused", "__tidemill_row", "__tidemill_lost"
_ENTRY = ("raw", "violated", "origin", KIND, "generation", "batch_id", "quarantined_at")
# A plan has the function once per batch, and analyzing it takes longer than running it where it has hundreds.
_BATCHES_PER_PLAN = 20


def held(stream: "Stream") -> Mapping[str, str]:
    """Return the kinds of what is in a quarantine that no replay can move, each with the reason."""
    reasons = {}
    if feed_of(stream) is None:
        reasons[INPUT] = "the stream no longer reads the feed that they came from"
    mode, tables = stream.query.output_mode, stream.tables
    if mode != "append" and (stream.external_sinks or not all(sink.orders_changes for sink in tables)):
        reasons[OUTPUT] = (
            f"in output mode {mode} they may be older than the rows that the sinks have got since; "
            f"tidemill rebuild {stream.name} computes them again"
        )
    return reasons


def validated(stream: "Stream", output: "StructType", refused: "DataFrame") -> "DataFrame":
    """Return what is in a quarantine with today's reasons.

    The columns are those of the quarantine table, where `violated` has today's reasons, and `before` the earlier ones.

    Args:
        output: The columns of the output.
        refused: Rows of the quarantine table, each with its kind.
    """
    staying, feed = held(stream), feed_of(stream)
    inputs, outputs = (of_kind(refused, kind) for kind in (INPUT, OUTPUT))
    parts = [
        _judged_records(feed, inputs) if feed is not None else _unchanged(inputs),
        _unchanged(outputs) if OUTPUT in staying else _judged_rows(stream, output, outputs),
    ]
    return united(parts)


def _unchanged(refused: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    return refused.select(*_ENTRY, F.col("violated").alias("before"))


def _judged_records(feed: "Feed", refused: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    records = refused.select(
        F.col("raw").alias(RAW), F.col("origin").alias(ORIGIN), F.struct(*_ENTRY).alias(_REFUSED)
    )
    return _with_reasons(feed.validated(records, _REFUSED), VIOLATED)


def _judged_rows(stream: "Stream", output: "StructType", refused: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    rows = with_refusals(_rows_of(refused, output), stream.expect)
    reasons = F.when(F.col(_LOST), F.array(F.lit(COLUMNS_CHANGED))).otherwise(F.col(REFUSED_BY))
    return _with_reasons(rows.withColumn(REFUSED_BY, reasons), REFUSED_BY)


def _with_reasons(rows: "DataFrame", reasons: str) -> "DataFrame":
    from pyspark.sql import functions as F

    entry = (F.col(reasons if name == "violated" else f"{_REFUSED}.{name}").alias(name) for name in _ENTRY)
    return rows.select(*entry, F.col(f"{_REFUSED}.violated").alias("before"))


def _rows_of(refused: "DataFrame", output: "StructType") -> "DataFrame":
    """Return rows of an output as they were, each with what the quarantine has of it."""
    from pyspark.sql import functions as F

    columns = json_columns(output)
    rows = refused.select(F.struct(*_ENTRY).alias(_REFUSED), row_of_json("raw", columns).alias(_ROW))
    entry = F.col(_REFUSED)
    apart = {
        ORIGIN: entry["origin"],
        BATCH: F.struct(entry["generation"].alias("generation"), entry["batch_id"].alias("batch_id")),
    }
    of_json = set(columns.names)
    values = (
        (F.col(_ROW)[field.name] if field.name in of_json else apart[field.name]).alias(field.name)
        for field in output.fields
    )
    return rows.select(*values, _REFUSED, F.col(_ROW).isNull().alias(_LOST))


def verdict_of(stream: "Stream", rows: "DataFrame") -> Verdict:
    """Return the counts of what `validated` returned."""
    from pyspark.sql import functions as F

    groups = rows.groupBy(KIND, "violated", "before").agg(F.count(F.lit(1)).alias("records")).collect()
    rules, staying = Counter[str](), held(stream)
    for group in groups:
        rules.update(dict.fromkeys(group["violated"], group["records"]))
    return Verdict(
        records=sum(group["records"] for group in groups),
        passed=sum(group["records"] for group in groups if not group["violated"]),
        passed_rows=sum(
            group["records"] for group in groups if not group["violated"] and group[KIND] == OUTPUT
        ),
        held={
            kind: number
            for kind in staying
            if (number := sum(group["records"] for group in groups if group[KIND] == kind))
        },
        changed=sum(
            group["records"]
            for group in groups
            if group["violated"] and set(group["violated"]) != set(group["before"])
        ),
        by_rule=dict(sorted(rules.items(), key=lambda item: (-item[1], item[0]))),
    )


def write_output(
    stream: "Stream",
    output: "StructType",
    rows: "DataFrame",
    verdict: Verdict,
    *,
    table: "TableRef",
    refused: "TableRef",
) -> dict[str, Any]:
    """Write the rows of what passed as a Delta table, and return their counts.

    A row keeps the batch that refused it, or its record: whatever selects rows by the batch that read their records,
    such as a backfill, selects it with its neighbors.

    Args:
        output: The columns of the output.
        rows: What `validated` returned, as it was written down.
        verdict: Their verdict.
        table: Where the rows are written that the sinks get.
        refused: Where those are written that expectations send to quarantine, as the quarantine has them.

    Raises:
        TerminalError: The function's output has a reserved column.
        Exception: Spark's error about the function, or an expectation that stops the stream.
    """
    from pyspark.sql import functions as F

    passed = rows.where(F.size("violated") == 0)
    computed = replace(table, key=f"{table.key}-computed") if stream.expect else table
    if verdict.passed_rows:
        _append(_written_rows(stream, output, passed), computed)
    if verdict.passed > verdict.passed_rows:
        for part in _outputs(stream, passed):
            _append(part, computed)
    if not stream.expect:
        return {"rows_out": None}
    written = computed.read(rows.sparkSession)
    numbers = _numbers(written, *counts(written, stream.expect))
    known: dict[str, Any] = {"rows_out": numbers.pop("rows"), "rows_dropped": numbers.pop("dropped")}
    known["violations"] = {name.removeprefix("violated_"): number for name, number in numbers.items()}
    if not stream.quarantines_rows:
        _append(kept(written, stream.expect), table)
        return known
    again = _numbers(written, refused_count())["rows_out_quarantined"]
    if again:
        batch = [F.col(f"{BATCH}.{name}").alias(name) for name in ("generation", "batch_id")]
        now = F.current_timestamp().alias("quarantined_at")
        _append(refused_rows(written, *batch, now), refused)
    _append(kept(passing(written), stream.expect), table)
    return known | {"rows_quarantined": again, "rows_out_quarantined": again}


def _numbers(rows: "DataFrame", *aggregates: Any) -> dict[str, Any]:
    row = rows.agg(*aggregates).first()
    return {} if row is None else {name: number or 0 for name, number in row.asDict().items()}


def _written_rows(stream: "Stream", output: "StructType", passed: "DataFrame") -> "DataFrame":
    """Return the rows of the output that passed: no expectation sends them to quarantine again."""
    rows = _rows_of(of_kind(passed, OUTPUT), output).drop(_REFUSED, _LOST)
    return with_refusals(rows, ()) if stream.quarantines_rows else rows


def _outputs(stream: "Stream", passed: "DataFrame") -> "Iterator[DataFrame]":
    """Yield what the function makes of the records that passed."""
    records, feed = of_kind(passed, INPUT), feed_of(stream)
    if feed is None:  # none of them has passed
        return
    batches = sorted(
        (row["generation"], row["batch_id"])
        for row in records.select("generation", "batch_id").distinct().collect()
    )
    for first in range(0, len(batches), _BATCHES_PER_PLAN):
        group = batches[first : first + _BATCHES_PER_PLAN]
        outputs = [_output(stream, feed, records, generation, batch) for generation, batch in group]
        part = united(outputs)
        yield with_refusals(part, stream.expect) if stream.quarantines_rows else part


def _output(stream: "Stream", feed: "Feed", records: "DataFrame", generation: int, batch: int) -> "DataFrame":
    """Return what the function makes of the records that one batch refused."""
    from pyspark.sql import functions as F

    own = records.where((F.col("generation") == generation) & (F.col("batch_id") == batch))
    lines = own.select(F.col("raw").alias(RAW), F.col("origin").alias(ORIGIN))
    output = stream(feed.validated(lines).drop(RAW, VIOLATED))
    reserved: Sequence[str] = [column for column in TABLE_COLUMNS if column != ORIGIN]
    refuse_reserved(output.columns, reserved, where="the function's output")
    return output.withColumn(BATCH, batch_column(generation, batch))


def _append(rows: "DataFrame", table: "TableRef") -> None:
    table.write(rows).mode("append").save()

"""Streams in SQL, in runs: their rows against plain Python, their columns' origins, and errors with their line."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.raising import raises
from tidemill import DeltaAppend, Pipeline, RateSource
from tidemill.operations.edits.code_changes import code_changes
from tidemill.testing import multiset

pytestmark = pytest.mark.jvm

BOTH = """
WITH orders AS (SELECT value, timestamp FROM orders WHERE value % 2 = 0)  -- the idiom of dbt
SELECT o.value, c.value AS click
FROM orders o JOIN clicks c ON o.value = c.value AND c.timestamp BETWEEN o.timestamp AND o.timestamp + INTERVAL 1 HOUR
"""


def test_a_text_joins_its_sources_run_after_run(scratch):
    rows = RateSource(rows_per_batch=4).with_watermark("timestamp", "1 minute")
    joined = Pipeline("shop").sql("joined", BOTH, source={"orders": rows, "clicks": rows}, sink=DeltaAppend())
    for _ in range(3):
        (result,) = scratch.run(joined)
        assert result.error is None
    # The rows of the first batch are of 1970-01-01 00:00, where Spark's watermark begins, so a join drops them.
    assert scratch.rows(joined) == multiset((value, value) for value in (4, 6, 8, 10))
    assert result.lineage == {"value": (("orders", "value"),), "click": (("clicks", "value"),)}
    (change,) = code_changes([joined], scratch.target, scratch.engine)
    assert (change.kind, change.error) == ("nothing", None)


def test_windows_of_a_text_close_as_the_watermark_says(scratch):
    text = """
        WITH minutes AS (SELECT window(timestamp, '1 minute') AS at, value FROM ticks)
        SELECT at.start AS at, count(*) AS n FROM minutes GROUP BY at"""
    source = RateSource(rows_per_batch=2, advance_ms=45_000).with_watermark("timestamp", "0 seconds")
    counts = Pipeline("shop").sql("counts", text, source=source, sink=DeltaAppend())
    for _ in range(5):
        (result,) = scratch.run(counts)
        assert result.error is None
    start = datetime(1970, 1, 1, tzinfo=UTC)
    times = [start + timedelta(seconds=45 * batch) for batch in range(5) for _ in range(2)]
    expected = Counter(time.replace(second=0) for time in times)
    newest = max(times)
    closed = {at: n for at, n in expected.items() if at + timedelta(minutes=1) <= newest}
    read = {at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC): n for at, n in scratch.rows(counts)}
    assert read == closed


def test_streams_that_use_the_same_names_do_not_see_each_other(scratch):
    spark = scratch.engine.new()
    spark.createDataFrame([(9,)], "value INT").createOrReplaceTempView("rows")
    small, big = (
        Pipeline("shop").sql(name, text, source=RateSource(), sink=DeltaAppend())
        for name, text in (
            ("small", "SELECT value FROM rows WHERE value < 3"),
            ("big", "SELECT value FROM rows WHERE value >= 3"),
        )
    )
    one, other = (small(spark.range(start, start + 2).toDF("value")) for start in (0, 2))
    last = big(spark.range(2, 4).toDF("value"))
    assert [sorted(row.value for row in rows.collect()) for rows in (one, other, last)] == [[0, 1], [2], [3]]
    assert [row.value for row in spark.table("rows").collect()] == [9]
    scratch.engine.close(spark)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("SELECT value,\n  nope + 1 AS x\nFROM rows", 2, "`nope` cannot be resolved"),
        ("SELECT nothing_of_spark(value)\nFROM rows", 1, "nothing_of_spark"),
        ("SELECT *\nFROM rows\nWHERE value > ALL (1)", 3, ""),
    ],
)
def test_a_plan_names_the_line_before_the_first_run(scratch, tmp_path, text, line, words):
    file = tmp_path / "rows.sql"
    file.write_text(text)
    stream = Pipeline("shop").sql("rows", file, source=RateSource(), sink=DeltaAppend())
    (change,) = code_changes([stream], scratch.target, scratch.engine)
    assert change.kind == "refused"
    assert str(change.error).startswith(f"shop/rows: line {line} of its SQL text (rows.sql:{line}): ")
    assert words in str(change.error)
    assert (change.error.code, "Fix: correct the text." in str(change.error)) == ("sql-invalid", True)
    with raises("sql-invalid", f"rows.sql:{line}"):
        scratch.run(stream)

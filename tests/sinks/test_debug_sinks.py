"""Sinks for debugging: what they show, and that they must be declared as such."""

import pytest

from tests.sinks.streams import sales, sales_stream
from tests.support.raising import raises
from tidemill import ConsoleSink, MemorySink
from tidemill.testing import multiset

ARRIVALS = [[("a shop with a long name", 5), (None, 3)], [("a", 5), ("b", 7)]]


def test_rows_are_printed_and_kept_in_memory(scratch, capfd):
    memory = MemorySink("memory", debug=True)
    stream = sales_stream(
        ConsoleSink(1, truncate=6, debug=True),
        memory,
        function=lambda sales: sales.select("shop", "amount"),
    )
    scratch.run(stream, [sales(*rows) for rows in ARRIVALS])
    assert multiset((row.shop, row.amount) for row in memory.rows()) == multiset(ARRIVALS[0] + ARRIVALS[1])
    printed = capfd.readouterr()
    first, second = printed.err.split("shops/sales, batch ")[1:]
    assert first.startswith("0:\nshop       amount")
    assert "\na shop...  5" in first
    assert "NULL" not in first
    assert "\n(more rows)\n" in first
    assert second.startswith("1:")
    assert "batch" not in printed.out


@pytest.mark.parametrize(
    ("declare", "code", "value"),
    [
        (ConsoleSink, "sink-for-debugging", "ConsoleSink keeps no rows after the run"),
        (lambda: MemorySink("rows"), "sink-for-debugging", "debug=True"),
        (lambda: ConsoleSink(0, debug=True), "argument-invalid", "n is 0"),
        (lambda: ConsoleSink(truncate=-1, debug=True), "argument-invalid", "truncate is -1"),
        (lambda: MemorySink("a name", debug=True), "name-invalid", "'a name'"),
    ],
)
def test_a_sink_that_is_declared_wrongly_is_refused(declare, code, value):
    with raises(code, value):
        declare()


def test_memory_of_another_process_is_refused():
    elsewhere = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with raises("sink-not-local", "'rows'", "Fix: "):
        MemorySink("rows", debug=True).prepare(elsewhere, None, None)

"""The calls of a writer: as Spark's `foreach` makes them, and with errors."""

import json

import pytest

from tests.sinks.streams import Closed, Log, processed, sales, sales_stream
from tests.support.raising import raises
from tidemill import DeltaAppend, ForeachSink
from tidemill.testing import multiset


def calls(path):
    return [tuple(json.loads(line)) for line in path.read_text().splitlines()]


def logged_stream(path):
    return sales_stream(ForeachSink(Log(path)), DeltaAppend())


def test_a_writer_is_opened_given_its_rows_and_closed(scratch, tmp_path):
    path = tmp_path / "calls"
    stream = logged_stream(str(path))
    scratch.run(stream, [sales(("a", 5), ("b", 3)), sales(("c", 7))])
    assert (
        multiset(processed(path))
        == scratch.rows(stream, "shop", "amount")
        == multiset([("a", 5), ("b", 3), ("c", 7)])
    )
    opened = [call for call in calls(path) if call[0] == "open"]
    assert {epoch for _, _, epoch in opened} == {0, 1}
    assert [call for call in calls(path) if call[0] == "close"] == [("close", "None")] * len(opened)
    assert stream.sinks[0].delivery == "at least once"


def test_close_sees_the_error_which_is_reported_with_its_line(scratch, tmp_path):
    path = tmp_path / "calls"
    with raises("query-failed", "ValueError: no such shop", "streams.py"):
        scratch.run(logged_stream(str(path)), [sales(("bad", 1))])
    assert ("close", "no such shop") in calls(path)


def test_a_partition_that_is_not_opened_is_left_out_and_closed(scratch, tmp_path):
    path = tmp_path / "calls"
    scratch.run(sales_stream(ForeachSink(lambda: Closed(str(path)), name="none")), [sales(("a", 5))])
    assert set(calls(path)) == {("close", "None")}


@pytest.mark.parametrize("writer", ["log", object])
def test_what_makes_no_writer_is_refused(writer):
    with raises("argument-invalid", "ForeachSink: writer", "process(row)"):
        ForeachSink(writer)


def test_a_sink_is_named_for_its_writer():
    assert ForeachSink(Log).name == ForeachSink(Log("calls")).name == "log"

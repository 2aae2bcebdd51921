"""The calls of a writer: as Spark's `foreach` makes them, with errors, and after a kill."""

import json

import pytest

from tests.sinks.killed.foreach_streams import Closed, Log, logged_stream
from tests.sinks.killed.kafka_streams import sales_stream
from tests.support.killed import killed_when
from tests.support.raising import raises
from tidemill import ForeachSink
from tidemill.checkpoint import commit_batches
from tidemill.testing import multiset


def sales(*rows):
    return [{"shop": shop, "amount": amount} for shop, amount in rows]


def calls(path):
    return [tuple(json.loads(line)) for line in path.read_text().splitlines()]


def processed(path):
    return multiset(call[1:] for call in calls(path) if call[0] == "process")


def test_a_writer_is_opened_given_its_rows_and_closed(scratch, tmp_path):
    path = tmp_path / "calls"
    stream = logged_stream(str(path))
    scratch.run(stream, [sales(("a", 5), ("b", 3)), sales(("c", 7))])
    assert (
        processed(path) == scratch.rows(stream, "shop", "amount") == multiset([("a", 5), ("b", 3), ("c", 7)])
    )
    opened = [call for call in calls(path) if call[0] == "open"]
    assert {epoch for _, _, epoch in opened} == {0, 1}
    assert [call for call in calls(path) if call[0] == "close"] == [("close", "None")] * len(opened)
    assert stream.sinks[0].delivery == "at least once"


def test_close_sees_the_error_which_is_reported_with_its_line(scratch, tmp_path):
    path = tmp_path / "calls"
    with raises("query-failed", "ValueError: no such shop", "foreach_streams.py"):
        scratch.run(logged_stream(str(path)), [sales(("bad", 1))])
    assert ("close", "no such shop") in calls(path)


def test_a_partition_that_is_not_opened_is_left_out_and_closed(scratch, tmp_path):
    path = tmp_path / "calls"
    scratch.run(sales_stream(ForeachSink(lambda: Closed(str(path)), name="none")), [sales(("a", 5))])
    assert set(calls(path)) == {("close", "None")}


def test_a_run_killed_before_the_commit_gives_its_rows_again(scratch, tmp_path):
    path = tmp_path / "calls"
    stream = logged_stream(str(path))
    scratch.arrive(stream, "sales", sales(("a", 5), ("b", 3)))
    arguments = [scratch.lake.uri, str(scratch.landing), str(path)]
    killed_when(
        ["tests.sinks.killed.foreach_streams", *arguments], tmp_path, point="shops/sales:between-sinks"
    )
    assert list(commit_batches(scratch.checkpoint(stream.name))) == []
    scratch.run(stream)
    assert processed(path) == multiset([("a", 5), ("b", 3)] * 2)
    assert scratch.rows(stream, "shop", "amount") == multiset([("a", 5), ("b", 3)])


@pytest.mark.parametrize("writer", ["log", object])
def test_what_makes_no_writer_is_refused(writer):
    with raises("argument-invalid", "ForeachSink: writer", "process(row)"):
        ForeachSink(writer)


def test_a_sink_is_named_for_its_writer():
    assert ForeachSink(Log).name == ForeachSink(Log("calls")).name == "log"

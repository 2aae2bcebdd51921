"""What Spark refuses to stream: named by `plan` and by a run, with the way around."""

import re

import pytest

from tests.plans.refused_cases import ALLOWED, REFUSED, two, with_flights
from tests.support.raising import raises
from tidemill import DeltaAppend, Feed, Json, Pipeline
from tidemill.operations.edits.code_changes import code_changes
from tidemill.run.spark.refusals import REFUSALS


@pytest.fixture(scope="module")
def flights(engine, tmp_path_factory):
    """A lake with the tables that the cases read."""
    return with_flights(tmp_path_factory.mktemp("flights"), engine)


def planned(scratch, stream):
    [change] = code_changes([stream], scratch.target, scratch.engine)
    return change


@pytest.mark.parametrize("name", REFUSED)
def test_plan_names_what_spark_cannot_stream_and_the_way_around(name, flights):
    case = REFUSED[name]
    change = planned(flights, case.code.stream())
    assert (change.kind, change.error.code) == ("refused", case.error)
    assert change.error.stream == "air/result"
    start = f"Spark cannot stream {case.operation}"
    if case.call:
        start += f" ({case.call} at {__file__.replace('test_refusals', 'refused_cases')}:"
    assert change.what.startswith(start)
    assert case.way in change.fix
    assert "\n" not in str(change.error)
    assert "~" not in str(change.error)


def test_every_refusal_has_a_case():
    patterns = [re.sub(r"\\\{\w+\\\}", ".+", re.escape(known.operation)) for known in REFUSALS]
    named = {case.operation for case in REFUSED.values()}
    assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, name) for name in named)] == []


@pytest.mark.parametrize("name", ["a top-N", "collect"])
def test_a_run_refuses_what_plan_refuses(name, flights):
    stream = REFUSED[name].code.stream()
    error = flights.run_all([stream])[0].error
    assert str(error) == str(planned(flights, stream).error)
    assert flights.lake.table(stream.name).log.latest_version() is None


@pytest.mark.parametrize("name", ALLOWED)
def test_plan_says_nothing_about_what_spark_allows(name, flights):
    assert planned(flights, ALLOWED[name].stream()).error is None


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (lambda sales: sales.orderBy("n"), "operation-unsupported"),
        (lambda sales: sales.groupBy("n").count().orderBy("n"), "feed-with-state"),
        (lambda sales: sales.limit(3), "feed-with-state"),
    ],
)
def test_a_feed_is_sent_to_another_stream_only_for_what_can_be_streamed(function, code, scratch):
    feed = Feed("sales", format=Json("n BIGINT"))
    (scratch.landing / "sales").mkdir(parents=True)
    stream = Pipeline("shop").stream(source=feed, sink=DeltaAppend(), name="sales")(function)
    assert planned(scratch, stream).error.code == code


def test_a_subquery_over_a_stream_in_a_sql_text_is_refused(flights):
    reader = two(lambda flights, others: flights.unionAll(others)).stream()
    text = "SELECT * FROM flights WHERE carrier IN (SELECT carrier FROM others)"
    stream = Pipeline("air").sql("late", text, source=dict(reader.sources), sink=DeltaAppend())
    with raises("operation-unsupported", "a subquery that reads a stream", ".static()"):
        raise planned(flights, stream).error

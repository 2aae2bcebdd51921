"""What functions observe: in the ledger, over the batches of a run, after a kill, and under which names."""

import pytest

from tests.conformance.streams.observing import streams
from tests.conformance.streams.observing_oracle import FIRST_RUN, RUNS, batches, records
from tests.support.killed import killed_when
from tests.support.raising import raises
from tidemill import DeltaAppend, Feed, Json, Pipeline
from tidemill import functions as F
from tidemill.records.stream_records import StreamRecords


def arrive(scratch, run):
    for views in RUNS[run]:
        scratch.drop_file("views", records(views))


def observed(scratch, stream):
    lines = sorted(StreamRecords(scratch.lake, stream.name).ledger.lines(), key=lambda line: line.batch_id)
    return [line.observed for line in lines]


def test_what_functions_observe_is_in_the_ledger_and_in_the_result(scratch):
    shop = streams(scratch.landing)
    arrive(scratch, 0)
    results = scratch.run_all(shop)
    assert [result.error for result in results if result.error] == []
    assert {result.stream.stream: result.observed for result in results} == FIRST_RUN
    assert {stream.name.stream: observed(scratch, stream) for stream in shop} == {
        name: lines[:2] for name, lines in batches().items()
    }


@pytest.mark.campaign
def test_after_a_kill_what_was_observed_is_there_or_unknown(scratch, tmp_path):
    shop = streams(scratch.landing)
    arrive(scratch, 1)
    points = {
        "mon_observe_feed": "after-sink",  # the function of a feed is not called again
        "mon_observe_merge": "before-batch",
        "mon_observe": "before-ledger",
        "mon_observe_state": "after-sink",  # the query is executed again, and writes nothing
    }
    killed_when(
        ["tests.conformance.streams.observing", scratch.lake.uri, str(scratch.landing)],
        tmp_path,
        point=" ".join(f"shop/{name}:{point}" for name, point in points.items()),
        every=len(points),
    )
    results = scratch.run_all(shop)
    assert [result.error for result in results if result.error] == []
    assert {stream.name.stream: observed(scratch, stream) for stream in shop} == {
        "mon_observe_feed": [None],
        "mon_observe_merge": [{"arrived": {"n": 1, "mean": 5.0}, "odd": {"n": 1}}],
        "mon_observe": [None],
        "mon_observe_state": [{"groups": {"n": 1, "mean": 5.0}}],
    }


def test_names_of_observations(scratch):
    def run(name, metric="n"):
        shop = Pipeline("shop")

        @shop.stream(source=Feed("views", format=Json("n BIGINT")), sink=DeltaAppend())
        def named(views):
            return views.observe(name, F.count("*").alias(metric))

        return scratch.run(named, [[{"n": 1}]])[-1].observed

    with raises("name-reserved", "shop/named", "'tidemill_read_more'"):
        run("tidemill_read_more")
    with raises("name-invalid", "shop/named", "'nn"):
        run("views", metric="n" * 101)
    with raises("name-invalid", "shop/named", r"'two\nlines'"):
        run("two\nlines")
    assert run("My views: [all], (1)", metric="n, #1L") == {"My views: [all], (1)": {"n, #1L": 4}}

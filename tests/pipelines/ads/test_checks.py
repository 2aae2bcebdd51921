"""The checks of `ads` are green over many healthy runs."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.ads import ads
from pipelines.ads.generate import generate
from tidemill.checks.evaluation import evaluate

RUNS = 200
EVENTS = 60
STREAMS = {stream.name: stream for stream in ads}
BY_DATA = {"campaign_known"}  # the events have impressions of ads without a campaign


def failures(scratch, results=None):
    """Return the checks that do not pass after a run of all streams, with their summaries."""
    now = datetime.now(UTC)
    by_stream = {result.stream: result for result in results or ()}
    return {
        f"{stream.name}:{check.name}": check.summary
        for stream in ads
        for check in evaluate(stream, scratch.target, now, result=by_stream.get(stream.name), streams=STREAMS)
        if not check.passed and check.name not in BY_DATA
    }


def assert_compared(scratch):
    """Evaluate all checks, and `exactly_once` again from the batches that the checkpoints keep."""
    assert failures(scratch) == {}
    for stream in ads:
        (Path(scratch.lake.records(stream.name).uri()) / "checks.json").unlink()
    assert failures(scratch) == {}


@pytest.mark.campaign
@pytest.mark.timeout(4 * 3600)
def test_all_checks_pass_over_many_healthy_runs(scratch):
    start = 0
    for run in range(RUNS):
        amounts = generate(out=scratch.landing, events=EVENTS, seed=11, files=1, start=start, late=1)
        start = amounts.next_start
        results = scratch.run_all(ads)
        assert {str(result.error) for result in results} == {"None"}
        assert failures(scratch, results) == {}, f"run {run}"
    assert_compared(scratch)

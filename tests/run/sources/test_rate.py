"""The smallest connector in runs: `load`, `kind` and a position, and everything else unknown."""

from datetime import timedelta

import pytest

from tests.checkpoint.recognized import verify
from tests.support.checked import failed_checks
from tidemill import DeltaAppend, Pipeline, RateSource
from tidemill.connectors.rate.position import RowPosition
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.status import status_of
from tidemill.testing import multiset

pytestmark = pytest.mark.jvm


def test_generated_rows_arrive_once_run_after_run(scratch):
    shop = Pipeline("shop")
    rows = shop.stream(source=RateSource(rows_per_batch=3), sink=DeltaAppend(), name="rows")(
        lambda rows: rows
    )
    assert status_of(rows, scratch.target).state == "never_run"
    for number in (1, 2):
        (result,) = scratch.run(rows)
        assert (result.outcome, result.total("rows_written")) == ("updated", 3)
        assert scratch.rows(rows, "value") == multiset((value,) for value in range(3 * number))
    snapshot = StreamRecords(scratch.lake, rows.name).snapshot()
    assert snapshot.sources["rows"].kind == "rate"
    assert RowPosition.of(snapshot.tail.committed_offsets.source("rows")) == RowPosition(
        6, "rate-micro-batch"
    )
    for level in ("quick", "full"):
        assert verify(snapshot.checkpoint, level=level).sound
    status = status_of(rows, scratch.target)
    assert (status.state, status.last_batch) == ("idle", 1)
    assert "cannot be counted: 3 generated rows per batch has no backlog" in status.polls[0]
    assert failed_checks(scratch, rows, later=timedelta(minutes=1)) == []

"""Rows of the table: monitoring, and the defaults of a query."""

from datetime import timedelta

import pytest

from tests.conformance.observing import streams
from tests.conformance.observing_oracle import FIRST_RUN, RUNS, batches, records
from tests.run.warm_streams import settings
from tidemill.engines.engine import SparkEngine
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.lake import Lake
from tidemill.testing import Scratch

pytestmark = [pytest.mark.jvm, pytest.mark.campaign, pytest.mark.timeout(1200)]


@pytest.fixture
def warm(tmp_path):
    engine = SparkEngine(settings(tmp_path, idle_timeout=timedelta(seconds=20)))
    yield Scratch(lake=Lake.at(tmp_path / "warm"), landing=tmp_path / "landing", engine=engine)
    engine.stop()


@pytest.mark.parametrize("where", ["scratch", "warm"], ids=["local", "warm"])
def test_mon_observe(where, request):
    scratch = request.getfixturevalue(where)
    shop = streams(scratch.landing)
    for number, run in enumerate(RUNS):
        for views in run:
            scratch.drop_file("views", records(views))
        results = scratch.run_all(shop)
        assert [result.error for result in results if result.error] == []
        if number == 0:
            assert {result.stream.stream: result.observed for result in results} == FIRST_RUN
    for stream in shop:
        lines = StreamRecords(scratch.lake, stream.name).ledger.lines()
        observed = [line.observed for line in sorted(lines, key=lambda line: line.batch_id)]
        assert observed == batches()[stream.name.stream], stream.name

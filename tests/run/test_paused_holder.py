"""A run that stands still, is taken over by a run on another host, and continues: it writes nothing."""

import os
import signal

import pytest

from tests.run.fault_oracle import BAD, ORDERS, PAYMENTS
from tests.run.fault_streams import shop
from tests.run.test_faults import FOR_KILL, Child, batches, version_of
from tests.support.waiting import wait_for
from tidemill.records import lease
from tidemill.records.stream_records import StreamRecords
from tidemill.testing import multiset

pytestmark = [pytest.mark.jvm, pytest.mark.campaign]
POINTS = {"payments": "before-batch", "refunds": "after-quarantine"}


@pytest.mark.parametrize("stream", POINTS)
def test_a_paused_holder_that_continues_after_a_takeover_writes_nothing(
    scratch, tmp_path, monkeypatch, stream
):
    made = shop()[stream]
    arrivals = PAYMENTS if stream == "payments" else ORDERS
    scratch.run(made, [[*arrivals[0], BAD]])
    scratch.arrive(made, "events", [*arrivals[1], BAD])
    child = Child(scratch, [stream], tmp_path, TIDEMILL_PAUSE_AT=f"shop/{stream}:{POINTS[stream]}")
    try:
        wait_for(child.reached, seconds=FOR_KILL)
        os.killpg(child.process.pid, signal.SIGSTOP)
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(lease, "boot_identity", lambda: "another boot")
            elsewhere.setattr(lease, "TIMEOUT_SECONDS", 0.0)
            scratch.run(made)
        after = state(scratch, stream)
        child.marker.with_name(f"{child.marker.name}.resume").touch()
        os.killpg(child.process.pid, signal.SIGCONT)
        assert child.process.wait(timeout=FOR_KILL) != 0
    finally:
        if child.process.poll() is None:
            os.killpg(child.process.pid, signal.SIGKILL)
    assert "another run has taken this stream over" in child.log.read_text()
    assert state(scratch, stream) == after
    assert scratch.rows(made, "order_id") == multiset(
        (row["order_id"],) for arrival in arrivals for row in arrival
    )
    scratch.run(made)
    assert state(scratch, stream) == after


def state(scratch, stream):
    """What a run could have written: batches, versions of the tables, and lines of the ledger."""
    name = shop()[stream].name
    records = StreamRecords(scratch.lake, name)
    quarantine = scratch.lake.quarantine(name).log.latest_version()
    lines = [(line.batch_id, line.run_id) for line in records.ledger.lines()]
    return batches(scratch, stream), version_of(scratch, stream), quarantine, lines

"""Operations exclude each other: one that is carried out is waited for, one that was killed is finished first."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.streaming.errors import LeaseHeldError, TerminalError
from pipelines.streaming.lifecycle.steps import Step, carry_out, staging_records, unfinished
from pipelines.streaming.names import StreamName
from pipelines.streaming.records import StreamRecords
from pipelines.streaming.records.lake import Lake
from pipelines.streaming.records.operation import new_operation

ORDERS = StreamName("shop", "orders")
# Another process that holds the lease in a folder until its standard input ends.
HOLD = """
import sys
from pathlib import Path
from pipelines.streaming.names import StreamName
from pipelines.streaming.records import lease
lease.take(Path(sys.argv[1]), StreamName("shop", "orders"), sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def records(tmp_path):
    return StreamRecords(Lake(tmp_path), ORDERS)


@pytest.fixture
def hold():
    """Hold the lease of records in another process; that process can be killed."""
    processes = []

    def held(records, run_id):
        folder = records.control / "lease"
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder), run_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        )
        processes.append(process)
        assert process.stdout.readline() == b"held\n"
        return process

    yield held
    for process in processes:
        process.kill()
        process.communicate()


def operation(day, *, publishing):
    command = f"tidemill backfill shop/orders --from {day}"
    begun = new_operation("backfill", {"begin": day}, command=command, decided={})
    return replace(begun, publishing=publishing)


@pytest.mark.parametrize("publishing", [False, True])
def test_an_operation_that_another_process_carries_out_is_in_progress(records, hold, publishing):
    other = operation("2026-01-02", publishing=publishing)
    records.write_operation(other)
    process = hold(records if publishing else staging_records(records, other), other.id)
    with pytest.raises(LeaseHeldError, match=r"its backfill of run backfill-.* is in progress"):
        unfinished(records, "backfill", {"begin": "2026-01-03"})
    process.kill()
    process.wait()
    if not publishing:  # it has changed nothing
        assert unfinished(records, "backfill", {"begin": "2026-01-03"}) is None
        return
    with pytest.raises(TerminalError, match="is not finished") as error:
        unfinished(records, "backfill", {"begin": "2026-01-03"})
    assert error.value.fix == "finish it: tidemill backfill shop/orders --from 2026-01-02"
    assert unfinished(records, "backfill", {"begin": "2026-01-02"}) == other


def test_an_operation_that_was_killed_is_finished_first_by_the_process_that_holds_the_lease(records):
    records.write_operation(operation("2026-01-02", publishing=True))
    lease = records.take_lease("backfill-of-this-process")
    try:
        with pytest.raises(TerminalError, match="is not finished"):
            unfinished(records, "backfill", {"begin": "2026-01-03"})
    finally:
        lease.release()


def test_the_first_of_two_operations_that_began_at_once_does_not_publish_over_the_other(records, hold):
    first, second = (operation(day, publishing=False) for day in ("2026-01-02", "2026-01-03"))
    records.write_operation(first)
    records.write_operation(second)  # it had looked before the first was written
    hold(staging_records(records, second), second.id)
    lease = records.take_lease(first.id)
    try:
        with pytest.raises(LeaseHeldError, match="is in progress"):
            carry_out(records, first, (Step("tables", lambda: pytest.fail("published")),), lease)
    finally:
        lease.release()
    assert records.operation() == second

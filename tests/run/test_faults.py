"""A run is killed at each point where it can hurt, and the next one makes it right.

Each test kills a real process and its JVM with SIGKILL, reads what the kill left in `offsets/` and
`commits/`, runs again in another process, and compares the tables with plain Python over the input.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.run.fault_oracle import (
    BAD,
    ORDERS,
    OWNERS,
    PAID_WATERMARK,
    PAYMENTS,
    START,
    WATERMARK,
    expected_copied,
    expected_ingest,
    expected_paid,
    expected_totals,
    expected_visits,
    expected_windows,
    minute,
    orders_of,
)
from tests.run.fault_streams import shop
from tests.servers.spark_of_tests import kill_server, own_server
from tests.support.killed import FOR_KILL
from tests.support.lakes import scratch_in
from tests.support.recorded import calls
from tidemill.checkpoint import commit_batches, offset_batches, read_commit
from tidemill.operations.edits.new_sink import accept_new_sink
from tidemill.records.stream_records import StreamRecords
from tidemill.testing import multiset


class Child:
    """A run in a process group of its own, so that the process and its JVM die in the same instant."""

    def __init__(self, scratch, streams, tmp_path, **environment):
        self.marker = tmp_path / "reached"
        self.log = tmp_path / "child.log"
        self.server = tmp_path / "server"
        command = [sys.executable, "-m", "tests.run.fault_streams"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, scratch.lake.uri, str(scratch.landing), *streams],
                env=os.environ
                | {"TIDEMILL_PAUSE_FILE": str(self.marker)}
                | own_server(self.server)
                | {k: str(v) for k, v in environment.items()},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def reached(self):
        """The points at which streams wait."""
        return set(self.marker.read_text().split()) if self.marker.exists() else set()

    def kill_when(self, condition):
        """Kills in the moment in which the condition holds."""
        deadline = time.monotonic() + FOR_KILL
        try:
            while not condition():
                assert self.process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.0005)
        finally:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            kill_server(self.server)


def killed_at(points, scratch, tmp_path, *, in_tasks=()):
    """A run of several streams, killed when each waits at its point or in a task."""
    at = {f"shop/{stream}:{point}" for stream, point in points.items()}
    task = tmp_path / "task"
    environment = {"TIDEMILL_PAUSE_AT": " ".join(at), "TEST_PAUSE_TASK": task if in_tasks else ""}
    child = Child(scratch, [*points, *in_tasks], tmp_path, **environment)
    child.kill_when(lambda: child.reached() == at and task.exists() == bool(in_tasks))


def killed_after_file(files, key, scratch, stream, tmp_path):
    folder, _, name = key.rpartition("/")
    Child(scratch, [stream], tmp_path).kill_when(lambda: name in files.names(folder))


def checkpoint_of(scratch, stream):
    return scratch.lake.checkpoint(shop()[stream].name, 1)


def batches(scratch, stream):
    """The newest batch in `offsets/` and in `commits/`."""
    checkpoint = checkpoint_of(scratch, stream)
    return max(offset_batches(checkpoint), default=-1), max(commit_batches(checkpoint), default=-1)


def calls_of(stream):
    return calls(Path(os.environ["TEST_CALLS"]) / stream)


def version_of(scratch, stream):
    return scratch.lake.table(shop()[stream].name).log.latest_version()


def next_delta_version(scratch, stream):
    log = scratch.lake.table(shop()[stream].name).log
    return log.store, f"{log.folder}/{version_of(scratch, stream) + 1:020d}.json"


def run_again(scratch, stream, *, changed=False):
    scratch.run(shop(changed=changed)[stream])
    offset, commit = batches(scratch, stream)
    assert offset == commit
    name = shop()[stream].name
    lines = sorted(StreamRecords(scratch.lake, name).ledger.lines(), key=lambda line: line.batch_id)
    assert [line.batch_id for line in lines] == list(range(commit + 1)), "the ledger has each batch once"
    assert all(line.rows_written is not None and line.delta_version is not None for line in lines)


def filled(scratch, *streams):
    """The upstream tables with the first arrival, those streams run on it, and the second arrival waiting."""
    made = shop()
    scratch.run(made["orders"], [ORDERS[0]])
    scratch.run(made["payments"], [PAYMENTS[0]])
    for stream in streams:
        scratch.run(made[stream])
    scratch.run(made["orders"], [ORDERS[1]])
    scratch.run(made["payments"], [PAYMENTS[1]])


# A kill costs a JVM: `make test` has each point once, `make test-full` all of them.
campaign = pytest.mark.campaign

AT = {
    "refunds": "after-sink",
    "returns": "between-sinks",
    "payments": "after-quarantine",
    "owners": "after-sink",
    "totals": "after-sink",
    "sent": "between-sinks",
    "noted": "after-sink",
    "copied": "before-ledger",
}


@pytest.fixture(scope="module")
def killed(engine, tmp_path_factory):
    """A lake whose streams were killed in their second run, all in the same instant, each at its point."""
    folder = tmp_path_factory.mktemp("killed")
    os.environ["TEST_CALLS"] = str(folder)
    scratch = scratch_in(folder / "lake", folder / "landing", engine)
    made = shop()
    first = {
        "refunds": [*ORDERS[0], BAD],
        "returns": [*ORDERS[0], BAD],
        "payments": [*PAYMENTS[0], BAD],
        "owners": OWNERS[0],
        "sent": ORDERS[0],
        "noted": ORDERS[0],
        "orders": ORDERS[0],
    }
    second = {
        "refunds": [*ORDERS[1], BAD],
        "returns": [*ORDERS[1], BAD],
        "payments": [*PAYMENTS[1], BAD],
        "owners": OWNERS[1],
        "sent": ORDERS[1],
        "noted": ORDERS[1],
        "names": [{"customer": "c0", "name": "c0"}],
    }
    for stream, rows in first.items():
        scratch.arrive(made[stream], "events", rows)
    assert not [
        r.error for r in scratch.run_all([made[name] for name in (*first, "copied", "totals")]) if r.error
    ]
    scratch.run(made["orders"], [ORDERS[1]])
    for stream, rows in second.items():
        scratch.arrive(made[stream], "events", rows)
    killed_at(AT, scratch, folder, in_tasks=["names"])
    yield scratch
    del os.environ["TEST_CALLS"]


@pytest.mark.parametrize("stream", ["refunds", "returns"])
def test_an_ingest_that_was_killed(killed, stream):
    """After its only table, or between two; and the next run comes with changed code."""
    made = shop()[stream]
    assert batches(killed, stream) == (1, 0)
    run_again(killed, stream, changed=True)
    assert killed.rows(made, "order_id") == expected_ingest()
    if stream == "returns":
        assert killed.table_rows(killed.lake.table(made.name, "archive"), "order_id") == expected_ingest()
    assert sum(killed.quarantined(made).values()) == 2


def test_an_ingest_that_was_killed_between_quarantine_and_target(killed):
    payments = shop()["payments"]
    assert batches(killed, "payments") == (1, 0)
    assert sum(killed.quarantined(payments).values()) == 2, "the kill came before the quarantine"
    run_again(killed, "payments")
    expected = multiset((p["order_id"],) for arrival in PAYMENTS for p in arrival)
    assert killed.rows(payments, "order_id") == expected
    assert sum(killed.quarantined(payments).values()) == 2


def test_a_function_that_was_killed_before_the_commit_is_called_again_with_the_same_batch(killed):
    sent = shop()["sent"]
    assert batches(killed, "sent") == (1, 0)
    assert [call.batch_id for call in calls_of("sent")] == [0, 1]
    run_again(killed, "sent")
    first, before, again = calls_of("sent")
    assert before == again
    assert first.query_id == again.query_id
    assert first.rows + again.rows == expected_ingest()
    commits = killed.table_rows(killed.lake.table(sent.name), "query_id", "batch_id", "rows")
    assert commits == multiset((call.query_id, call.batch_id, call.rows.total()) for call in (first, again))


def test_a_function_that_was_killed_after_the_commit_is_not_called_again(killed):
    assert batches(killed, "noted") == (1, 0)
    run_again(killed, "noted")
    first, second = calls_of("noted")
    assert [first.batch_id, second.batch_id] == [0, 1]
    assert first.rows + second.rows == killed.rows(shop()["noted"], "order_id") == expected_ingest()


def test_tasks_that_were_killed(killed):
    assert batches(killed, "names") == (0, -1)
    run_again(killed, "names")
    assert killed.rows(shop()["names"]) == multiset([("c0", "c0")])


def test_a_merge_that_was_killed_after_its_commit(killed):
    assert batches(killed, "totals") == (1, 0)
    before = version_of(killed, "totals")
    run_again(killed, "totals")
    assert version_of(killed, "totals") == before, "the table has the batch, and gets it no second time"
    assert killed.rows(shop()["totals"], "customer", "n", "amount") == expected_totals()


def test_a_history_that_was_killed_after_its_commit(killed):
    assert batches(killed, "owners") == (1, 0)
    before = version_of(killed, "owners")
    run_again(killed, "owners")
    assert version_of(killed, "owners") == before
    expected = [
        ("c0", "first of c0", START, minute(30)),
        ("c0", "second of c0", minute(30), None),
        ("c1", "first of c1", START, None),
    ]
    columns = ("customer", "owner", "__START_AT", "__END_AT")
    assert killed.rows(shop()["owners"], *columns) == multiset(expected)


def test_a_run_that_was_killed_before_its_ledger(killed):
    name = shop()["copied"].name
    assert batches(killed, "copied") == (1, 1)
    assert [line.batch_id for line in StreamRecords(killed.lake, name).ledger.lines()] == [0]
    run_again(killed, "copied")
    lines = {line.batch_id: line for line in StreamRecords(killed.lake, name).ledger.lines()}
    assert {batch: line.reconstructed for batch, line in lines.items()} == {0: False, 1: True}
    assert lines[1].rows_written == len(ORDERS[1])
    assert killed.rows(shop()["copied"]) == expected_copied()


@campaign
@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("point", ["before-batch", "after-quarantine", "after-sink"])
def test_an_ingest_that_was_killed_anywhere(scratch, tmp_path, point, changed):
    refunds = shop()["refunds"]
    scratch.run(refunds, [[*ORDERS[0], BAD]])
    scratch.arrive(refunds, "events", [*ORDERS[1], BAD])
    killed_at({"refunds": point}, scratch, tmp_path)
    assert batches(scratch, "refunds") == (1, 0)
    run_again(scratch, "refunds", changed=changed)
    assert scratch.rows(refunds, "order_id") == expected_ingest()
    assert sum(scratch.quarantined(refunds).values()) == 2


FIRST_RUNS = {
    "windows": (expected_windows, ("start", "n")),
    "visits": (expected_visits, ("customer", "start", "n")),
    "paid": (expected_paid, ("order_id", "paid_at")),
    "totals": (expected_totals, ("customer", "n", "amount")),
    "copied": (expected_copied, ("order_id", "amount")),
}


@pytest.fixture(scope="module")
def arrived(engine, tmp_path_factory):
    """A lake in which both arrivals are ingested, and no other stream has ever run."""
    folder = tmp_path_factory.mktemp("arrived")
    scratch = scratch_in(folder / "lake", folder / "landing", engine)
    filled(scratch)
    return scratch


@campaign
@pytest.mark.parametrize("stream", FIRST_RUNS)
def test_a_first_run_that_was_killed_after_its_first_offsets(arrived, tmp_path, stream):
    """The repair repeats batch 0, runs its no-data batch, and continues: no attempt fails."""
    expected, columns = FIRST_RUNS[stream]
    killed_after_file(checkpoint_of(arrived, stream), "offsets/0", arrived, stream, tmp_path)
    assert batches(arrived, stream) == (0, -1), "killed too late: the batch is committed"
    run_again(arrived, stream)
    assert arrived.rows(shop()[stream], *columns) == expected()


@campaign  # the test after this one is the same, with a snapshot
def test_a_native_append_that_was_killed_after_its_offsets(scratch, tmp_path):
    filled(scratch, "copied")
    killed_after_file(checkpoint_of(scratch, "copied"), "offsets/1", scratch, "copied", tmp_path)
    assert batches(scratch, "copied")[0] == 1
    run_again(scratch, "copied")
    assert scratch.rows(shop()["copied"]) == expected_copied()


@pytest.mark.campaign
def test_a_repeated_batch_joins_the_snapshot_of_its_first_attempt(scratch, tmp_path):
    made = shop()
    old = [{"customer": customer, "name": f"old {customer}"} for customer in ("c0", "c1")]
    scratch.run(made["names"], [old])
    filled(scratch, "named")
    killed_after_file(checkpoint_of(scratch, "named"), "offsets/1", scratch, "named", tmp_path)
    assert batches(scratch, "named")[0] == 1
    scratch.run(made["names"], [[{"customer": "c0", "name": "new c0"}]])  # would double the orders of c0
    scratch.run(made["orders"], [orders_of([60])])
    run_again(scratch, "named")
    expected = [(o["order_id"], f"old {o['customer']}") for arrival in ORDERS for o in arrival]
    expected += [("o60", "old c0"), ("o60", "new c0")]
    assert scratch.rows(made["named"]) == multiset(expected)


EXPECTED = {
    "windows": expected_windows,
    "counts": expected_windows,
    "visits": expected_visits,
    "paid": expected_paid,
}


@pytest.fixture(scope="module")
def waiting(engine, tmp_path_factory):
    """A lake in which each of these streams has the second arrival before it; a test kills its own alone."""
    folder = tmp_path_factory.mktemp("waiting")
    scratch = scratch_in(folder / "lake", folder / "landing", engine)
    filled(scratch, *EXPECTED)
    return scratch


def killed_between_delta_and_spark(scratch, stream, tmp_path, *, changed):
    offset, _ = batches(scratch, stream)
    checkpoint = checkpoint_of(scratch, stream)
    killed_after_file(*next_delta_version(scratch, stream), scratch, stream, tmp_path)
    assert batches(scratch, stream) == (offset + 1, offset), "killed too late: the batch is committed"
    if changed:  # the code has one more sink, which begins with the next batch
        accept_new_sink(shop(changed=True)[stream], scratch.target, "archive")
    run_again(scratch, stream, changed=changed)
    assert scratch.rows(shop()[stream]) == EXPECTED[stream]()
    watermark = min(WATERMARK, PAID_WATERMARK) if stream == "paid" else WATERMARK
    assert (
        read_commit(checkpoint, max(commit_batches(checkpoint))).next_watermark_ms
        == watermark.timestamp() * 1000
    )


@pytest.mark.parametrize(
    ("stream", "changed"),
    [
        ("windows", True),
        pytest.param("visits", False, marks=campaign),
        pytest.param("paid", False, marks=campaign),
    ],
)
def test_a_stateful_append_that_was_killed_between_delta_and_spark(waiting, tmp_path, stream, changed):
    """Delta has the batch, `commits/` has not: Spark alone would skip it and lose its watermark."""
    killed_between_delta_and_spark(waiting, stream, tmp_path, changed=changed)


@campaign
def test_windows_that_were_killed_between_delta_and_spark_without_a_change(scratch, tmp_path):
    filled(scratch, "windows")
    killed_between_delta_and_spark(scratch, "windows", tmp_path, changed=False)


def killed_before_its_no_data_batch(scratch, stream, tmp_path):
    offset, _ = batches(scratch, stream)
    checkpoint = checkpoint_of(scratch, stream)
    killed_after_file(checkpoint, f"commits/{offset + 1}", scratch, stream, tmp_path)
    assert batches(scratch, stream)[1] == offset + 1
    run_again(scratch, stream)
    assert scratch.rows(shop()[stream]) == EXPECTED[stream]()
    control = scratch.lake.records(shop()[stream].name)
    assert "repairs" in control.names() or batches(scratch, stream)[0] > offset + 1


def test_a_run_that_was_killed_before_its_no_data_batch(waiting, tmp_path):
    """The data batch is done, the batch that emits what its watermark closed never ran."""
    killed_before_its_no_data_batch(waiting, "counts", tmp_path)


@campaign
def test_a_join_that_was_killed_before_its_no_data_batch(scratch, tmp_path):
    filled(scratch, "paid")
    killed_before_its_no_data_batch(scratch, "paid", tmp_path)

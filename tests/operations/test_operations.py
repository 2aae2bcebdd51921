"""Operations exclude each other: one that is carried out is waited for, one that was killed is finished first."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.checkpoint import handmade
from tests.support.raising import raises
from tidemill import DeltaAppend, DeltaMerge, Feed, Json, Pipeline
from tidemill.checkpoint.write import CheckpointWriter
from tidemill.definitions.code_version import code_version
from tidemill.operations.core.staging import Staging
from tidemill.operations.core.steps import COMPUTE, exclusive_operation, staging_records, unfinished
from tidemill.operations.generations.reset import reset
from tidemill.operations.generations.rewind import rewind
from tidemill.operations.housekeeping.maintain import maintain
from tidemill.operations.housekeeping.prune import prune
from tidemill.operations.replay.backfill import backfill
from tidemill.operations.replay.rebuild import REBUILD, rebuild
from tidemill.records.manifest import Manifest, first_manifest
from tidemill.records.operation import new_operation
from tidemill.records.stream_records import StreamRecords
from tidemill.run.execute.progress import Live
from tidemill.run.spark import classic
from tidemill.storage.lake import Lake
from tidemill.testing import Scratch, multiset
from tidemill.text.names import StreamName

ORDERS = StreamName("shop", "orders")
# Another process that holds a lease until its standard input ends.
HOLD = """
import sys
from pathlib import Path
from tidemill.text.names import StreamName
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.lake import Lake
records = StreamRecords(Lake.at(Path(sys.argv[1])), StreamName("shop", "orders"))
getattr(records, sys.argv[2])(sys.argv[3])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def records(tmp_path):
    return StreamRecords(Lake.at(tmp_path), ORDERS)


@pytest.fixture
def hold():
    """Hold a lease in another process; that process can be killed."""
    processes = []

    def held(records, take, run_id):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, records.lake.uri, take, run_id],
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
    process = hold(records, "take_lease" if publishing else "take_operation_lease", other.id)
    with raises("lease-held", "backfill of run backfill-"):
        unfinished(records, "backfill", {"begin": "2026-01-03"})
    process.kill()
    process.wait()
    if not publishing:  # it has changed nothing
        assert unfinished(records, "backfill", {"begin": "2026-01-03"}) is None
        return
    with raises("operation-not-finished") as error:
        unfinished(records, "backfill", {"begin": "2026-01-03"})
    assert error.value.fix == "finish it: tidemill backfill shop/orders --from 2026-01-02"
    assert unfinished(records, "backfill", {"begin": "2026-01-02"}) == other


def test_an_operation_that_was_killed_is_finished_first_by_the_process_that_holds_the_lease(records):
    records.write_operation(operation("2026-01-02", publishing=True))
    lease = records.take_lease("backfill-of-this-process")
    try:
        with raises("operation-not-finished"):
            unfinished(records, "backfill", {"begin": "2026-01-03"})
    finally:
        lease.release()


def test_one_operation_at_a_time_computes_beside_a_stream(records, hold):
    first, second = (operation(day, publishing=False) for day in ("2026-01-02", "2026-01-03"))
    process = hold(records, "take_operation_lease", first.id)
    with raises("lease-held"), exclusive_operation(records, second):
        pytest.fail("computed")  # it had looked before the first began
    process.kill()
    process.wait()
    records.write_operation(replace(first, publishing=True))
    with raises("operation-not-finished"), exclusive_operation(records, second):
        pytest.fail("computed")
    with exclusive_operation(records, first) as current:
        assert current.publishing, "what another process did with it meanwhile is known"
    ended = records.end_operation(first)
    with exclusive_operation(records, first) as current:
        assert current == ended


def test_an_operation_over_which_another_has_begun_is_not_published(records):
    class Computing(Staging):
        def compute(self):
            records.write_operation(operation("2026-01-03", publishing=False))
            return {}

        catch_up = result = steps = lambda _: pytest.fail("published")

    first = operation("2026-01-02", publishing=False)
    stream = SimpleNamespace(name=ORDERS)
    staging = Computing(
        stream=stream, target=None, engine=None, records=records, operation=first, live=Live()
    )
    with raises("changed-meanwhile") as error:
        staging.complete(publish=True)
    assert error.value.fix == "start over: tidemill backfill shop/orders --from 2026-01-02"


class NoSpark:
    """An engine that no step asks for a session."""

    def new(self):
        pytest.fail("a step began")

    def default_partitions(self):
        return 1


def days(records):
    """A stream that has run once and can be rebuilt and backfilled, and the target."""
    feed = Feed("orders", Json("id INT, day STRING"))
    orders = Pipeline("shop").stream(source=feed, sink=DeltaAppend(), name="orders", backfill_by="day")(
        lambda events: events
    )
    CheckpointWriter(records.checkpoint(1)).begin(handmade.QUERY_ID)
    records.write_manifest(first_manifest({}).with_active(query_id=handmade.QUERY_ID))
    rows = pa.table({"id": [1], "day": ["2026-01-02"]})
    write_deltalake(records.table().uri, rows)
    return orders, Scratch(lake=records.lake, landing=Path(records.lake.uri), engine=None).target


@pytest.mark.parametrize("done", [(), ("old", "tables"), ("old", "tables", "ledger")])
def test_a_rebuild_whose_staged_files_are_missing_changes_no_table(records, done):
    orders, target = days(records)
    decided = {"generation": 2, "code_version": code_version(orders), "missing": [], "old_rows": 1}
    begun = REBUILD.begin(orders.name, REBUILD.recorded(keep_old=False, allow_missing=False), decided)
    begun = replace(begun, publishing=True, done=(COMPUTE, *done), result={"rows_before": 1, "rows_after": 1})
    records.write_operation(begun)
    for _ in range(2):
        with raises("staging-missing", "shop/orders", begun.id):
            rebuild(orders, target, NoSpark())
    assert (records.table().log.latest_version(), records.operation()) == (0, begun)
    assert records.manifest().active.number == 1
    # The folder was being removed, which is the last step.
    records.write_operation(replace(begun, done=(COMPUTE, *REBUILD.steps[:-1])))
    rebuild(orders, target, NoSpark())
    assert records.operation() is None


def test_a_rebuild_whose_staged_checkpoint_is_missing_changes_no_table(records):
    orders, target = days(records)
    decided = {"generation": 2, "code_version": code_version(orders), "missing": [], "old_rows": 1}
    begun = REBUILD.begin(orders.name, REBUILD.recorded(keep_old=False, allow_missing=False), decided)
    begun = replace(begun, publishing=True, done=(COMPUTE,), result={"rows_before": 1, "rows_after": 1})
    records.write_operation(begun)
    generation = replace(records.manifest().active, number=2, query_id=None)
    staging_records(records, begun).write_manifest(Manifest(generations=(generation,)))
    with raises("staging-missing", "shop/orders", records.checkpoint(2).uri()):
        rebuild(orders, target, NoSpark())
    assert records.table().log.latest_version() == 0


@pytest.mark.campaign
def test_the_lease_of_an_operation_shows_the_jvm_that_commits_for_it(scratch):
    """A server may commit on when its client has been killed, and the next run must not begin before that."""
    shop = Pipeline("shop")
    accounts = shop.stream(
        source=Feed("accounts", Json("id INT, day STRING, at TIMESTAMP, closed BOOLEAN")),
        sink=DeltaMerge(keys=["id"], sequence_by="at", apply_as_deletes="closed"),
        backfill_by="day",
        name="accounts",
    )(lambda events: events)
    where = (accounts, scratch.target, scratch.engine)
    records = StreamRecords(scratch.lake, accounts.name)
    jvm = classic.jvm_pid(scratch.engine.new())

    def accounts_of(*ids, closed=False):
        return [{"id": n, "day": "2026-01-01", "at": "2026-01-01T00:00:00Z", "closed": closed} for n in ids]

    def is_shown(kind):
        newest = max(Path(records.control.uri()).glob("lease/*.json"), key=lambda path: int(path.stem))
        lease = json.loads(newest.read_text())
        assert lease["run_id"].startswith(kind)
        assert lease["jvm_pid"] == jvm

    scratch.run(accounts, [accounts_of(1, 2), accounts_of(3, closed=True)])
    backfill(*where, begin="2026-01-01", end="2026-01-02")
    is_shown("backfill")
    prune(*where)
    is_shown("prune")
    rewind(*where, to_batch=0)
    is_shown("rewind")
    rebuild(*where)
    is_shown("rebuild")
    reset(*where, start="earliest", table="new")
    is_shown("reset")
    scratch.run(accounts, [accounts_of(number) for number in range(5, 10)])
    maintain(*where, streams=[accounts])
    is_shown("maintain")
    assert scratch.rows(accounts, "id") == multiset((number,) for number in (1, 2, *range(5, 10)))

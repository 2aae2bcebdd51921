"""Pruning: what is left behind goes past its age, and nothing that is in use does."""

import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.leases import held
from tidemill import DeltaAppend, DeltaMerge, Feed, Json, Pipeline
from tidemill.checks.evaluation import evaluate
from tidemill.operations.housekeeping.prune import prune
from tidemill.records.manifest import first_manifest
from tidemill.records.operation import new_operation
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.lake import Lake
from tidemill.testing import Scratch, multiset

MONTH = timedelta(days=30)

shop = Pipeline("shop")


@shop.stream(
    source=Feed("accounts", Json("id INT, at TIMESTAMP, closed BOOLEAN")),
    sink=DeltaMerge(keys=["id"], sequence_by="at", apply_as_deletes="closed"),
)
def accounts(events):
    return events


@shop.stream(source=accounts.changes(), sink=DeltaAppend())
def changes(accounts):
    return accounts.select("id", "_change_type")


@pytest.fixture
def lake(tmp_path):
    """A lake with a stream in its third generation, with leftovers of every age."""
    lake = Lake.at(tmp_path)
    records = StreamRecords(lake, accounts.name)
    [first] = first_manifest({}).generations
    began = {1: timedelta(days=90), 2: timedelta(days=60), 3: timedelta(days=10)}
    generations = [
        replace(first, number=number, began_at=(datetime.now(UTC) - age).isoformat())
        for number, age in began.items()
    ]
    records.write_manifest(replace(first_manifest({}), generations=tuple(generations)))
    for number in began:
        written(Path(records.checkpoint(number).uri()) / "metadata")
        written(Path(lake.table(accounts.name, f"generation_{number}").uri) / "part.parquet")
    for name, age in (("old", MONTH + timedelta(days=1)), ("new", timedelta(days=1))):
        written(Path(lake.uri) / lake.staging(accounts.name) / name / "part.parquet", age)
        written(Path(records.control.uri()) / "repairs" / name / "offsets" / "1", age)
        written(Path(records.control.uri()) / "repairs" / f"1-offsets-{name}", age)
    return lake


def written(path, age=timedelta(0)):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("content")
    os.utime(path, (time.time() - age.total_seconds(),) * 2)


def pruned(lake, **options):
    target = Scratch(lake=lake, landing=Path(lake.uri), engine=None).target
    return prune(accounts, target, None, **options)


def remaining(lake):
    folders = (
        Path(lake.uri) / "checkpoints",
        Path(lake.uri) / "tables",
        Path(lake.uri) / "staging",
        Path(lake.records(accounts.name).uri()) / "repairs",
    )
    return {
        str(path.relative_to(Path(lake.uri)))
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_is_past_its_age_is_removed_and_nothing_else(lake):
    everything = remaining(lake)
    plan = pruned(lake, dry_run=True)
    assert remaining(lake) == everything
    assert pruned(lake).leftovers == plan.leftovers
    removed = {
        "checkpoints/shop/accounts/1/metadata",  # it ended when the second began
        "tables/shop/accounts__generation_1/part.parquet",
        "staging/shop/accounts/old/part.parquet",
        "control/shop/accounts/repairs/old/offsets/1",
        "control/shop/accounts/repairs/1-offsets-old",
    }
    assert everything - remaining(lake) == removed
    assert plan.bytes == len("content") * len(removed)
    assert pruned(lake).outcome == "idle"
    assert pruned(lake, older_than=timedelta(0)).outcome == "pruned"
    assert remaining(lake) == {
        "checkpoints/shop/accounts/3/metadata",
        "tables/shop/accounts__generation_3/part.parquet",
    }


def test_an_unfinished_operation_keeps_what_it_has_computed(lake):
    records = StreamRecords(lake, accounts.name)
    records.write_operation(new_operation("backfill", {}, command="tidemill backfill", decided={}))
    assert "staging" not in {leftover.kind for leftover in pruned(lake).leftovers}
    assert "staging/shop/accounts/old/part.parquet" in remaining(lake)


def test_an_operation_that_was_given_up_is_removed_with_what_it_has_computed(lake):
    records = StreamRecords(lake, accounts.name)
    given_up = new_operation("rebuild", {}, command="tidemill rebuild", decided={})
    began = (datetime.now(UTC) - MONTH - timedelta(days=1)).isoformat()
    written(Path(records.checkpoint(4).uri()) / "metadata", MONTH + timedelta(days=1))
    for publishing in (True, False):
        records.write_operation(replace(given_up, began_at=began, publishing=publishing))
        assert [
            Path(leftover.path).name
            for leftover in pruned(lake, dry_run=True).leftovers
            if leftover.kind == "staging"
        ] == ([] if publishing else ["old"])
    pruned(lake)
    assert records.operation() is None
    assert not {path for path in remaining(lake) if "/old/" in path or "/4/" in path}


def test_nothing_is_pruned_beside_a_run(lake):
    everything = remaining(lake)
    with held(StreamRecords(lake, accounts.name).control.below("lease"), accounts.name, "a run"):
        result = pruned(lake)
    assert (result.outcome, "a run" in result.reason, remaining(lake)) == ("busy", True, everything)


@pytest.mark.campaign
def test_old_tombstones_are_removed_and_readers_do_not_see_it(scratch):
    def event(number, days, *, closed=False):
        at = datetime.now(UTC) - timedelta(days=days)
        return {"id": number, "at": at.isoformat(), "closed": closed}

    opened = [event(number, 50) for number in (1, 2, 3)]
    scratch.run(accounts, [opened, [event(1, 40, closed=True), event(2, 20, closed=True)]])
    scratch.run(changes)
    before = scratch.rows(changes)

    result = prune(accounts, scratch.target, scratch.engine)
    assert [leftover.rows for leftover in result.leftovers] == [1]
    assert prune(accounts, scratch.target, scratch.engine).outcome == "idle"
    [check] = evaluate(accounts, scratch.target, datetime.now(UTC), names=["exactly_once"])
    assert check.passed, check.summary
    scratch.run_all([changes])
    assert (
        scratch.rows(changes)
        == before
        == multiset([(n, "insert") for n in (1, 2, 3)] + [(n, "delete") for n in (1, 2)])
    )

    # The tombstone that is left still rejects an older change; the key of the other one may come back.
    scratch.run(accounts, [[event(1, 45), event(2, 45)]])
    assert scratch.rows(accounts, "id") == multiset([(1,), (3,)])

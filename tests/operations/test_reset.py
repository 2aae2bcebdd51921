"""Resets: a stream continues elsewhere, and what is doubled or skipped is named and must be allowed."""

import json

import pytest

from tests.operations.test_backfill import is_exact
from tests.operations.test_rewind import Killed, steps
from tests.support.raising import raises
from tidemill import DeltaAppend, DeltaMerge, Feed, Json, Pipeline
from tidemill.operations.generations.reset import STEPS, reset
from tidemill.records.stream_records import StreamRecords
from tidemill.testing import multiset


@pytest.fixture
def shop():
    """An ingest stream, a copy of it, a merge, and a deduplication."""
    pipeline = Pipeline("shop")

    @pipeline.stream(source=Feed("events", format=Json("n INT, at TIMESTAMP")), sink=DeltaAppend())
    def events(events):
        return events

    @pipeline.stream(source=events, sink=DeltaAppend())
    def copied(events):
        return events

    @pipeline.stream(source=events, sink=DeltaMerge(keys=["n"], sequence_by="at"))
    def newest(events):
        return events

    @pipeline.stream(source=events.with_watermark("at", "1 hour"), sink=DeltaAppend())
    def unique(events):
        return events.dropDuplicatesWithinWatermark(["n"])

    return pipeline


def arrive(scratch, *numbers):
    scratch.drop_file("events", [{"n": n, "at": f"2026-01-01T00:{n:02}:00Z"} for n in numbers])


def again(scratch, stream, **flags):
    return reset(stream, scratch.target, scratch.engine, **flags)


def numbers(scratch, stream):
    return scratch.rows(stream, "n")


def test_from_now_on_only_new_files_are_read(scratch, shop):
    events = shop["events"]
    arrive(scratch, 1, 2)
    scratch.run(events)
    arrive(scratch, 3)
    with raises("rows-doubled-or-skipped", "Never read: those of 2 files"):
        again(scratch, events, start="now", table="keep")
    again(scratch, events, start="now", table="keep", allow_skipped=True)
    assert scratch.run(events)[0].outcome == "idle"
    arrive(scratch, 4)
    scratch.run(events)
    assert numbers(scratch, events) == multiset([(1,), (2,), (4,)])
    is_exact(scratch, events)


@pytest.mark.campaign  # the steps of an operation have one executor, and a rewind is killed in the gate
@pytest.mark.parametrize("step", steps(STEPS))
def test_a_reset_that_is_killed_after_any_step_is_finished_by_the_same_command(
    scratch, shop, monkeypatch, step
):
    events = shop["events"]
    arrive(scratch, 1, 2)
    scratch.run(events)

    def killed(point, _stream):
        if point == f"reset-{step}":
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("tidemill.operations.core.steps.pause_point", killed)
        with pytest.raises(Killed):
            again(scratch, events, start="earliest", table="new")
    again(scratch, events, start="earliest", table="new")
    assert numbers(scratch, events) == multiset([])
    arrive(scratch, 3)
    scratch.run(events)
    assert numbers(scratch, events) == multiset([(1,), (2,), (3,)])
    old = scratch.table_rows(scratch.lake.table(events.name, "generation_1"), "n")
    assert old == multiset([(1,), (2,)])
    is_exact(scratch, events)


@pytest.mark.campaign
def test_offsets_of_a_table_are_versions(scratch, shop):
    events, copied = shop["events"], shop["copied"]
    for number in (1, 2, 3):
        arrive(scratch, number)
        scratch.run(events)
        scratch.run(copied)
    for text in ("later", "[]"):
        with raises("argument-invalid", text):
            again(scratch, copied, start=text, table="keep")
    with raises("source-not-declared", "'rows'"):
        again(scratch, copied, start='{"rows": 2}', table="keep")
    second = json.dumps({"events": 2})
    with raises("rows-doubled-or-skipped", "Read a second time: versions 2 to 3 of events") as refused:
        again(scratch, copied, start=second, table="keep")
    assert refused.value.fix.endswith("--table keep --allow-doubled")
    again(scratch, copied, start=second, table="keep", allow_doubled=True)
    scratch.run(copied)
    assert numbers(scratch, copied) == multiset([(1,), (2,), (2,), (3,), (3,)])
    again(scratch, copied, start=second, table="replace")
    scratch.run(copied)
    assert numbers(scratch, copied) == multiset([(2,), (3,)])
    is_exact(scratch, copied)


def test_a_batch_that_cannot_be_finished_is_skipped_only_where_that_is_allowed(scratch, shop):
    events = shop["events"]

    @shop.stream(source=events, sink=DeltaAppend())
    def shares(events):
        return events.selectExpr("n", "1 / (n - 13) AS share")

    for number in (1, 13):
        arrive(scratch, number)
        scratch.run(events)
        (result,) = scratch.run_all([shares])
    assert result.outcome == "failed"
    for start in ("now", json.dumps({"events": 3})):
        with raises("rows-doubled-or-skipped", "Never read: versions 2 to 2 of "):
            again(scratch, shares, start=start, table="keep")
    again(scratch, shares, start="now", table="keep", allow_skipped=True)
    arrive(scratch, 2)
    scratch.run(events)
    scratch.run(shares)
    assert numbers(scratch, shares) == multiset([(1,), (2,)])
    is_exact(scratch, shares)


def test_a_batch_that_a_table_has_is_finished_before_its_stream_continues_elsewhere(scratch, shop):
    events, copied = shop["events"], shop["copied"]
    for number in (1, 2):
        arrive(scratch, number)
        scratch.run(events)
        scratch.run(copied)
    commits = scratch.checkpoint(copied.name) / "commits"
    for name in ("1", ".1.crc"):  # as a kill leaves it, after the table's commit and before Spark's
        (commits / name).unlink(missing_ok=True)
    begin = json.dumps({"events": 2})
    with raises("batch-not-finished", "batch 1 is in table copied") as refused:
        again(scratch, copied, start=begin, table="keep", allow_skipped=True)
    assert "tidemill run shop/copied" in refused.value.fix
    again(scratch, copied, start=begin, table="replace")
    scratch.run(copied)
    assert numbers(scratch, copied) == multiset([(2,)])
    is_exact(scratch, copied)


def test_a_merge_is_not_doubled_and_state_has_no_middle(scratch, shop):
    events, newest, unique = (shop[name] for name in ("events", "newest", "unique"))
    arrive(scratch, 1, 2)
    for stream in (events, newest, unique):
        scratch.run(stream)
    again(scratch, newest, start="earliest", table="keep")
    scratch.run(newest)
    assert numbers(scratch, newest) == multiset([(1,), (2,)])
    with raises("reset-not-possible"):
        again(scratch, unique, start="now", table="keep")
    again(scratch, unique, start="earliest", table="replace")
    scratch.run(unique)
    assert numbers(scratch, unique) == multiset([(1,), (2,)])
    assert [one.kind for one in StreamRecords(scratch.lake, unique.name).operations()] == ["reset"]

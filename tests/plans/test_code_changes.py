"""What changed code does to a running stream: each verdict agrees with what Spark then does."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.plans.code_cases import BY_CARRIER, CASES, EVERY, FIRST, SECOND, complete, count_by
from tests.support.raising import raises
from tidemill import Expect
from tidemill.errors import NOTHING_LOST, TerminalError
from tidemill.operations.edits.accept import accept_change
from tidemill.operations.edits.code_changes import code_changes
from tidemill.records.stream_records import StreamRecords
from tidemill.testing import multiset

REFUSED = ("mixes_state", "refused_by_spark")


def files(scratch, stream):
    """Return the contents of everything about a stream that a refused run leaves as it was."""
    folders = [Path(scratch.lake.checkpoint(stream.name, 1).uri()), Path(scratch.lake.table(stream.name).uri)]
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


def start(scratch, case):
    """Run the old code once, and let more rows arrive; return the stream with the new code."""
    before, now = case.before.stream(), case.now.stream()
    for source in before.sources:
        scratch.arrive(before, source, FIRST)
    for source in set(now.sources) - set(before.sources):
        scratch.arrive(now, source, FIRST + SECOND)
    assert scratch.run_all([before])[0].error is None
    for source in before.sources:
        scratch.arrive(before, source, SECOND)
    return now


def computed_at_once(scratch, case, stream):
    """Return what the new code computes from all rows."""
    spark = scratch.engine.new()
    inputs = [
        spark.read.format("delta").load(str(scratch.lake.table(source.stream)))
        for source in stream.sources.values()
    ]
    return multiset(case.now.function(*inputs).collect())


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if case.in_gate else pytest.mark.campaign) for name, case in CASES.items()],
)
def test_the_verdict_agrees_with_what_spark_does(name, scratch):
    case = CASES[name]
    now = start(scratch, case)
    [change] = code_changes([now], scratch.target, scratch.engine)
    assert change.kind == case.kind
    assert case.difference in "; ".join(map(str, change.differences))

    if case.kind in REFUSED:
        untouched = files(scratch, now)
        error = scratch.run_all([now])[0].error
        assert isinstance(error, TerminalError)
        assert case.difference in error.what
        assert error.lost == NOTHING_LOST
        assert "tidemill accept air/result --change" in error.fix
        assert files(scratch, now) == untouched
        accept_change(now, scratch.target, scratch.engine)

    [result] = scratch.run_all([now])
    if case.kind == "refused":
        assert result.error.what == change.what
    elif case.kind == "refused_by_spark":
        assert result.error.code == "state-incompatible"
        assert result.error.error_class.startswith(("STATE_STORE_", "STREAMING_STATEFUL_OPERATOR_"))
    else:
        assert result.error is None
        assert result.total("rows_read")
    if case.rows is not None:
        assert scratch.rows(now) == case.rows
    if case.kind == "mixes_state" and case.now.mode == "complete":
        assert scratch.rows(now) != computed_at_once(scratch, case, now)


def test_a_run_records_its_operators_and_what_was_accepted(scratch):
    case = CASES["another group key of the same name and type"]
    now = start(scratch, case)
    records = StreamRecords(scratch.lake, now.name)
    [operator] = records.manifest().active.operators
    assert operator.properties["group keys"] == "carrier"
    with raises("nothing-to-change"):
        accept_change(case.before.stream(), scratch.target, scratch.engine)
    plan = accept_change(now, scratch.target, scratch.engine, dry_run=True)
    assert "aggregate: group keys 'carrier' -> 'origin'" in plan.effects
    assert records.manifest().active.operators == (operator,)
    accept_change(now, scratch.target, scratch.engine)
    [accepted] = records.manifest().active.accepted_changes
    assert accepted.differences == ("aggregate: group keys 'carrier' -> 'origin'",)
    assert (accepted.before, accepted.last_batch) == ((operator,), 0)
    [change] = code_changes([now], scratch.target, scratch.engine)
    assert change.is_fine


def test_a_refused_run_can_continue_with_the_old_code(scratch):
    case = CASES["a filter below an aggregation"]
    now = start(scratch, case)
    assert scratch.run_all([now])[0].outcome == "failed"
    old = case.before.stream()
    assert scratch.run_all([old])[0].error is None
    assert scratch.rows(old) == multiset([("x", 3), ("y", 1), ("z", 2)])


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("keys", "kind"), [(["origin AS carrier"], "safe"), (["carrier", "origin"], "refused_by_spark")]
)
def test_a_first_batch_that_failed_fixes_the_types_of_state_only(scratch, keys, kind):
    failing = (Expect("never", "carrier = 'nobody'", on_violation="fail"),)
    before, now = replace(BY_CARRIER.stream(), expect=failing), complete(count_by(*keys)).stream()
    scratch.arrive(before, "flights", FIRST)
    assert scratch.run_all([before])[0].error.rule == "never"
    [change] = code_changes([now], scratch.target, scratch.engine)
    assert change.kind == kind
    if kind == "refused_by_spark":
        accept_change(now, scratch.target, scratch.engine)
    [result] = scratch.run_all([now])
    assert (result.error is None) == (kind == "safe")
    if result.error is None:
        assert scratch.rows(now) == multiset([("y", 1), ("x", 1), ("z", 1)])
    else:
        assert result.error.code == "state-incompatible"
        assert result.error.error_class == "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"


def test_a_feed_and_a_stream_without_state_are_safe_to_change(scratch):
    stream = EVERY.stream()
    scratch.arrive(stream, "flights", FIRST)
    [change] = code_changes([stream], scratch.target, scratch.engine)
    assert (change.kind, change.fix) == ("safe", "")
    assert not Path(scratch.lake.checkpoint(stream.name, 1).uri()).exists()
    assert scratch.run_all([stream])[0].error is None
    [change] = code_changes([stream], scratch.target, scratch.engine)
    assert change.kind == "nothing"


def test_what_is_declared_without_an_effect_is_a_warning(scratch):
    now = complete(count_by("carrier"), options={"shuffle_partitions": 2}).stream()
    before = BY_CARRIER.stream()
    scratch.arrive(before, "flights", FIRST)
    assert scratch.run_all([before])[0].error is None
    [change] = code_changes([now], scratch.target, scratch.engine)
    assert change.kind == "nothing"
    assert "the checkpoint keeps 1" in change.warnings[0]

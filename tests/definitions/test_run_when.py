"""The policy by which a backlog starts a run."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.support.raising import raises
from tidemill import DeltaAppend, Feed, Pipeline, Raw, RunWhen
from tidemill.definitions.run_when import Amount

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ago(**length):
    return NOW - timedelta(**length)


@pytest.mark.parametrize(
    ("policy", "amount", "due", "reason"),
    [
        (RunWhen(), Amount(), True, "unread data"),
        (RunWhen(rows=100), Amount(rows=99), False, "waits for more: 99 of 100 rows"),
        (RunWhen(rows=100), Amount(rows=100), True, "100 of 100 rows"),
        (RunWhen(files=1), Amount(files=3), True, "3 of 1 file"),
        (RunWhen(bytes=10), Amount(bytes=9), False, "waits for more: 9 of 10 bytes"),
        (
            RunWhen(oldest="5 minutes"),
            Amount(oldest_at=ago(minutes=5)),
            True,
            "the oldest is 0:05:00 of 0:05:00",
        ),
        (RunWhen(oldest="5 minutes"), Amount(oldest_at=ago(minutes=4)), False, None),
        (RunWhen(quiet="1 minute"), Amount(newest_at=ago(seconds=61)), True, "quiet for 0:01:01 of 0:01:00"),
        (RunWhen(quiet="1 minute"), Amount(newest_at=ago(seconds=59)), False, None),
        # The first condition that is reached is enough.
        (RunWhen(rows=100, oldest="1 hour"), Amount(rows=1, oldest_at=ago(hours=2)), True, None),
        (RunWhen(rows=100, oldest="1 hour"), Amount(rows=1, oldest_at=ago(minutes=2)), False, None),
        # What cannot be measured does not count, and a policy with nothing to measure starts a run.
        (RunWhen(rows=100, files=2), Amount(files=1), False, "waits for more: 1 of 2 files"),
        (RunWhen(rows=100), Amount(files=1), True, "unread data"),
    ],
)
def test_a_policy_is_due_when_its_first_condition_is_reached(policy, amount, due, reason):
    decision = policy.due(amount, now=NOW)
    assert decision.now is due
    assert reason is None or decision.reason == reason


def test_runs_are_at_most_so_frequent():
    policy = RunWhen(at_most_every="10 minutes")
    assert policy.pause(None, now=NOW) == timedelta(0)
    assert policy.pause(ago(minutes=4), now=NOW) == timedelta(minutes=6)
    assert policy.pause(ago(minutes=11), now=NOW) == timedelta(0)


@pytest.mark.parametrize(
    ("fields", "code", "value"),
    [
        ({"rows": 0}, "argument-invalid", "rows is 0"),
        ({"files": True}, "argument-invalid", "files is True"),
        ({"oldest": "soon"}, "argument-invalid", "oldest is 'soon'"),
        ({"cron": "61 * * * *"}, "argument-invalid", "cron is '61"),
        ({"cron": "* * * *"}, "argument-invalid", "'* * * *'"),
        ({"cron": "0 6 * * fry"}, "argument-invalid", "fry"),
        ({"cron": "*/0 * * * *"}, "argument-invalid", "*/0"),
        ({"cron": "0 6 * * *", "rows": 5}, "arguments-conflict", "cron"),
    ],
)
def test_a_wrong_policy_is_refused_where_it_is_declared(fields, code, value):
    with raises(code, value):
        RunWhen(**fields)


@pytest.mark.parametrize("cron", ["*/15 * * * *", "0 6 * * mon-fri", "5,35 0-6/2 1 jan,JUL 7", "0 0 * * *"])
def test_a_schedule_is_accepted(cron):
    assert RunWhen(cron=cron).cron == cron


def test_a_stream_has_the_policy_of_its_pipeline_unless_it_has_its_own():
    hourly, large = RunWhen(cron="0 * * * *"), RunWhen(rows=1000)
    shop = Pipeline("shop", run_when=hourly)

    def declared(name, **fields):
        return shop.stream(source=Feed(name, format=Raw()), sink=DeltaAppend(), name=name, **fields)(
            lambda rows: rows
        )

    assert declared("orders").run_when == hourly
    assert declared("names", run_when=large).run_when == large
    with raises("argument-invalid", "shop/bad", "'hourly'"):
        declared("bad", run_when="hourly")

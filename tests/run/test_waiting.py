"""A run that waits for the runs that hold its streams."""

import math
from types import SimpleNamespace

import pytest

from tests.support.leases import held
from tests.support.raising import raises
from tidemill import DeltaAppend, Feed, Pipeline, Raw
from tidemill.run.decide.waiting import wait_until_free
from tidemill.storage.lake import Lake
from tidemill.text.durations import flag_duration


@pytest.fixture
def stream():
    return Pipeline("shop").stream(source=Feed("orders", format=Raw()), sink=DeltaAppend(), name="orders")(
        lambda rows: rows
    )


def test_a_run_waits_until_the_holder_has_released_its_lease(stream, tmp_path):
    lake, looks = Lake.at(tmp_path), []
    with held(lake.records(stream.name).below("lease"), stream.name, "the-other-run") as lease:

        def release_at_the_second_look(waiting, holder):
            looks.append((waiting.name, holder.run_id))
            if len(looks) == 2:
                lease.release()

        wait_until_free([stream], lake, seconds=math.inf, on_wait=release_at_the_second_look)
    assert looks == [(stream.name, "the-other-run")] * 2


def test_a_wait_ends_with_its_time_and_the_stream_is_still_held(stream, tmp_path, monkeypatch):
    now = iter(range(100))
    monkeypatch.setattr(
        "tidemill.run.decide.waiting.time",
        SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _seconds: None),
    )
    lake, looks = Lake.at(tmp_path), []
    with held(lake.records(stream.name).below("lease"), stream.name, "the-other-run"):
        wait_until_free([stream], lake, seconds=3, on_wait=lambda *look: looks.append(look))
    assert len(looks) == 2


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86400), ("1 hour 30 minutes", 5400)],
)
def test_a_length_of_time_on_the_command_line(written, seconds):
    assert flag_duration(written, field="--wait").total_seconds() == seconds


def test_a_wrong_length_of_time_is_named():
    with raises("argument-invalid", "--wait", "'3 apples'"):
        flag_duration("3 apples", field="--wait")

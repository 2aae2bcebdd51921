"""Every stream of a run ends with a result, whatever is raised, and in whichever step of the handling."""

import pytest

from tidemill import DeltaAppend, Feed, Json, Pipeline
from tidemill.errors import CanceledError
from tidemill.records.lease import Lease, holder_of
from tidemill.records.ledger import Ledger
from tidemill.records.stream_records import StreamRecords
from tidemill.run.execute import pipeline_run
from tidemill.run.execute.progress import Live
from tidemill.run.execute.stream_run import StreamRun
from tidemill.storage.lake import Lake
from tidemill.testing import Scratch


class NoSpark:
    """An engine that nothing asks for a session."""

    def default_parallel(self):
        return 2

    def expect(self, **_):
        pass


class SilentError(Exception):
    """An error whose message raises, too."""

    def __str__(self):
        raise ValueError("no message")


class Failing:
    """Two streams, one reads the other; the first one's query raises, and so do the named steps after it."""

    def __init__(self, folder, patch):
        self.lake, self._patch, self._has_failed = Lake.at(folder / "lake"), patch, False
        self._scratch = Scratch(self.lake, folder / "landing", NoSpark())

    def run(self, error):
        def query(_):
            self._has_failed = True
            raise error

        self._patch.setattr(StreamRun, "run", query)
        shop = Pipeline("shop")
        feed = Feed("orders", Json("id STRING"))
        orders = shop.stream(source=feed, sink=DeltaAppend(), name="orders")(lambda events: events)
        shop.stream(source=orders, sink=DeltaAppend(), name="copy")(lambda events: events)
        self._scratch.drop_file("orders", [{"id": "a"}])
        return self._scratch.run_all(shop)

    def fail_afterwards(self, owner, name, error):
        before = getattr(owner, name)

        def step(*args, **kwargs):
            if self._has_failed:
                raise error
            return before(*args, **kwargs)

        self._patch.setattr(owner, name, step)


@pytest.fixture
def failing(tmp_path, monkeypatch):
    return Failing(tmp_path, monkeypatch)


STEPS = {
    "the translation of the error": (pipeline_run, "translated"),
    "the tail of the checkpoint": (StreamRecords, "snapshot"),
    "the ledger": (Ledger, "lines"),
    "the manifest": (StreamRecords, "manifest"),
    "the position of the failure": (pipeline_run, "failure_position"),
    "the write of the manifest": (StreamRecords, "write_manifest"),
    "the progress": (Live, "leave"),
    "the release of the lease": (Lease, "release"),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "also", [OSError("disk"), SystemExit(3), SilentError()], ids=lambda e: type(e).__name__
)
def test_a_step_of_the_handling_that_raises_is_a_warning(failing, step, also):
    failing.fail_afterwards(*STEPS[step], also)
    orders, copied = failing.run(ValueError("of the stream"))
    assert (orders.outcome, copied.outcome) == ("failed", "skipped")
    assert "ValueError" in str(orders.error)
    assert any(type(also).__name__ in warning for warning in orders.warnings)


def test_an_error_that_cannot_be_translated_has_a_code_and_its_type(failing):
    failing.fail_afterwards(pipeline_run, "translated", OSError("disk"))
    orders, _ = failing.run(ValueError("of the stream"))
    assert (orders.error.code, orders.error.stream) == ("unexpected-error", "shop/orders")
    assert "ValueError" in orders.error.what


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), SilentError()], ids=lambda e: type(e).__name__
)
def test_whatever_a_stream_raises_is_its_failure(failing, error):
    orders, copied = failing.run(error)
    assert (orders.outcome, copied.outcome) == ("failed", "skipped")
    assert type(error).__name__ in str(orders.error)
    assert holder_of(failing.lake.records(orders.stream).below("lease")) is None


def test_a_cancelation_whose_batches_cannot_be_read_is_a_result(failing):
    failing.fail_afterwards(Ledger, "lines", OSError("disk"))
    orders, _ = failing.run(CanceledError())
    assert orders.outcome == "failed"


def test_a_failure_is_in_the_manifest_and_its_lease_is_free(failing):
    orders, _ = failing.run(ValueError("of the stream"))
    records = StreamRecords(failing.lake, orders.stream)
    assert (orders.warnings, records.holder()) == ((), None)
    assert "of the stream" in records.manifest().last_run.error


def test_a_decision_whose_handling_fails_is_a_result(failing, monkeypatch):
    def broken(*_):
        raise OSError("disk")

    monkeypatch.setattr(pipeline_run, "decide_run", broken)
    monkeypatch.setattr(StreamRecords, "holder", broken)
    assert [result.outcome for result in failing.run(ValueError())] == ["failed", "failed"]

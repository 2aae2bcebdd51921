"""What `tidemill run` prints per stream."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from rich.text import Text
from typer.testing import CliRunner

from tests.orchestration.shop import ORDERS, Shop
from tidemill import DeltaAppend, Expect, Feed, Json, Pipeline
from tidemill.checks.evaluation import evaluate
from tidemill.cli.run.results import line
from tidemill.cli.run.run import app
from tidemill.errors import CanceledError, TerminalError
from tidemill.records.batch import BatchRecord, Late
from tidemill.run.execute.results import StreamResult
from tidemill.storage.lake import Lake
from tidemill.target.target import Target
from tidemill.text.names import StreamName

NAME = StreamName("shop", "orders")


def batches(count: int, **numbers) -> tuple[BatchRecord, ...]:
    ids = {"run_id": "r", "generation": 1, "query_id": "q", "started_at": ""}
    return tuple(BatchRecord(batch_id=number, **ids, **numbers) for number in range(count))


def printed(**fields) -> str:
    return " ".join(Text.from_markup(line(StreamResult(stream=NAME, **fields), 12)).plain.split())


@pytest.mark.parametrize(("count", "noun"), [(1, "1 batch"), (2, "2 batches"), (0, "0 batches")])
def test_batches_agree_with_their_number(count, noun):
    result = {"outcome": "updated", "batches": batches(count, rows_read=1, rows_written=1), "seconds": 1.23}
    assert printed(**result) == f"updated shop/orders {count} read, {count} written, {noun}, 1.2 s"


def test_quarantined_dropped_and_late_rows_are_named_where_there_are_any():
    one = batches(
        1, rows_read=1200, rows_written=5, rows_quarantined=2, rows_dropped=3, late=Late(1, "groups")
    )
    assert (
        printed(outcome="updated", batches=one)
        == "updated shop/orders 1,200 read, 5 written, 2 quarantined, 3 dropped, 1 late group, 1 batch, 0.0 s"
    )


def test_a_canceled_stream_with_what_it_committed():
    error = CanceledError(stream=NAME)
    text = printed(outcome="canceled", batches=batches(1), error=error)
    assert text == "canceled shop/orders the run was interrupted, 1 batch committed"
    assert printed(outcome="canceled", error=error) == "canceled shop/orders the run was interrupted"


def test_an_error_is_text_not_markup_and_names_the_stream_once():
    error = TerminalError("column [red]x[/] is missing.", stream=NAME, fix="add it.")
    text = printed(outcome="failed", error=error)
    assert text.startswith("failed shop/orders column [red]x[/] is missing.")
    assert text.count("shop/orders") == 1


@pytest.mark.parametrize(("outcome", "reason"), [("idle", "nothing new"), ("skipped", "a did not succeed")])
def test_a_stream_that_did_not_run_with_its_reason(outcome, reason):
    assert printed(outcome=outcome, reason=reason) == f"{outcome} shop/orders {reason}"


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """Return a function that runs the command on a lake without the table of `orders`, with a given result."""
    shop = Shop.make(tmp_path, monkeypatch)
    shop.has_run("a.json")

    def run(*arguments: str, outcome: str = "updated", **fields):
        result = StreamResult(stream=ORDERS, outcome=outcome, **fields)

        class Run:
            """A run of that stream that needs no JVM."""

            live = SimpleNamespace(streams=())
            finished = (result,)

            def __init__(self, *_arguments, **_named):
                pass

            def iter_results(self, **_named):
                yield result

        monkeypatch.setattr("tidemill.run.execute.pipeline_run.PipelineRun", Run)
        return CliRunner().invoke(app, ["shop/orders", *arguments])

    return run


def test_a_failed_check_is_printed_after_the_streams_and_exits_0(ran):
    done = ran(batches=batches(1, rows_read=1))
    lines = [" ".join(line.split()) for line in done.stderr.splitlines()]
    assert done.exit_code == 0
    assert lines[0].startswith("updated shop/orders 1 read")
    assert lines[1].startswith("error shop/orders exactly_once: ")
    assert "The table orders is missing" in lines[1]


def test_the_json_has_every_check_of_a_stream_that_ran(ran):
    (stream,) = json.loads(ran("--json").stdout)["streams"]
    statuses = {check["check"]: check["status"] for check in stream["checks"]}
    assert statuses["exactly_once"] == "error"
    assert statuses["backlog"] == "pass"


def test_the_json_names_an_error_by_its_code(ran):
    error = TerminalError("column x is missing.", code="column-removed", stream=NAME)
    (stream,) = json.loads(ran("--json", outcome="failed", error=error).stdout)["streams"]
    assert (stream["error"]["code"], stream["error"]["what"]) == ("column-removed", "column x is missing.")


@pytest.mark.parametrize("outcome", ["idle", "busy", "skipped"])
def test_a_stream_that_did_not_run_has_no_checks(ran, outcome):
    done = ran("--json", outcome=outcome)
    (stream,) = json.loads(done.stdout)["streams"]
    assert stream["checks"] is None


def test_an_unfinished_stream_has_the_result_of_the_rule_that_stopped_it_only(tmp_path):
    @Pipeline("p").stream(
        source=Feed("f", Json("n INT")),
        sink=DeltaAppend(),
        expect=[Expect(name, "n > 0", on_violation="fail") for name in ("first", "second")],
    )
    def stream(rows):
        return rows

    error = TerminalError("no", stream=stream.name, rule="second")
    result = StreamResult(stream=stream.name, outcome="failed", error=error)
    target = Target(name="t", lake=Lake.at(tmp_path), default_binding=tmp_path / "landing")
    checks = evaluate(stream, target, datetime.now(UTC), result=result)
    assert {check.name for check in checks} & {"first", "second"} == {"second"}


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--for", "1h"], "add --follow: tidemill run --follow --for 1h"),
        (["--once", "--follow"], "--once ends after one batch"),
        (["--follow=soon"], "--follow is 'soon'"),
        (["--follow", "--for", "long"], "--for is 'long'"),
    ],
)
def test_flags_that_make_no_sense_are_refused(flags, named):
    result = CliRunner().invoke(app, flags)
    assert named in str(result.exception)


def test_a_run_in_two_parts_has_one_result_per_stream():
    from tidemill.cli.run.run import _joined

    other = StreamName("shop", "other")
    first = [
        StreamResult(
            stream=NAME, outcome="updated", batches=batches(2, rows_read=1), seconds=1.0, reason="2 files"
        ),
        StreamResult(stream=other, outcome="failed", error=TerminalError("wrong", stream=other, fix="x")),
    ]
    then = [StreamResult(stream=NAME, outcome="idle", seconds=2.0, reason="nothing new")]
    joined = _joined(first, then)
    assert [(result.stream, result.outcome, result.seconds) for result in joined] == [
        (NAME, "updated", 3.0),
        (other, "failed", 0.0),
    ]
    assert joined[0].total("rows_read") == 2
    assert joined[0].reason == "2 files"

"""What `tidemill run` prints per stream."""

import pytest
from rich.text import Text

from orchestration.cli.run import line
from pipelines.streaming.errors import CanceledError, TerminalError
from pipelines.streaming.names import StreamName
from pipelines.streaming.records import BatchRecord, Late
from pipelines.streaming.run.results import StreamResult

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

"""The check `exactly_once` over sinks that are no tables: what was lost there, and what runs there ahead."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.servers.postgres import PASSWORD, VARIABLE
from tests.sinks.streams import sales, sales_stream
from tidemill import DeltaAppend, FileSink, JdbcSink
from tidemill.checks.evaluation import evaluate
from tidemill.operations.edits.accept import accept_findings
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.status import status_of

ARRIVALS = [sales(("a", 5)), sales(("b", 3)), sales(("c", 7))]


def check(scratch, stream):
    (result,) = evaluate(stream, scratch.target, datetime.now(UTC), names=["exactly_once"])
    return result


def check_loss(scratch, stream, lose, *, name):
    """Lose what is newer than the first batch; the finding stays when a run has written another one."""
    scratch.run(stream, ARRIVALS)
    assert check(scratch, stream).status == "pass"
    assert [sink.last_batch for sink in status_of(stream, scratch.target).sinks] == [2]
    lose()
    lost = check(scratch, stream)
    assert lost.status == "error"
    assert f"{name} ends at batch 0, and had batch 2 at the last check" in lost.summary
    assert f"tidemill accept {stream.name} --findings" in lost.summary
    assert scratch.run(stream, [sales(("d", 1))])[0].outcome == "updated"
    later = check(scratch, stream)
    assert f"{name} ended at batch 0 when a run began, and had batch 2 at the last check" in later.summary
    accept_findings(stream, scratch.target)
    assert check(scratch, stream).status == "pass"
    assert scratch.run(stream, [sales(("e", 1))])[0].outcome == "updated"
    assert check(scratch, stream).status == "pass"


def without_entries(folder, *entries):
    """Remove entries of a folder's log."""
    for entry in entries:
        (folder / "_spark_metadata" / str(entry)).unlink()


def set_batch(table, batch):
    """Set the newest batch that the table has."""
    table.server.execute(f"UPDATE {table.batches} SET batch_id = {batch}")  # noqa: S608 - of tests


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "files"


@pytest.fixture
def table(postgres, scratch, monkeypatch):
    monkeypatch.setenv(VARIABLE, PASSWORD)
    scratch.databases["default"] = postgres.database
    return postgres.new_table("sales")


def test_entries_that_a_log_of_files_has_lost_are_named(scratch, folder):
    stream = sales_stream(FileSink(str(folder), "json"), DeltaAppend())
    check_loss(scratch, stream, lambda: without_entries(folder, 2, 3), name="FileSink 'files'")


@pytest.mark.campaign
def test_a_database_of_an_older_time_is_named(scratch, table):
    stream = sales_stream(JdbcSink(str(table)))

    def restore():
        set_batch(table, 0)

    check_loss(scratch, stream, restore, name="JdbcSink 'jdbc'")


@pytest.mark.campaign
def test_files_of_batches_that_no_check_has_seen_are_named(scratch, folder):
    stream = sales_stream(FileSink(str(folder), "json"), DeltaAppend())
    scratch.run(stream, ARRIVALS)
    without_entries(folder, 3)
    result = check(scratch, stream)
    assert result.status == "error"
    assert "FileSink 'files' ends at batch 1, and the checkpoint ends at batch 2" in result.summary
    assert "1 batch from batch 2 on" in result.summary


def test_a_damaged_log_of_files_is_named(scratch, folder):
    stream = sales_stream(FileSink(str(folder), "json"), DeltaAppend())
    scratch.run(stream, ARRIVALS[:1])
    (folder / "_spark_metadata" / "1").write_text("v1\n{")
    result = check(scratch, stream)
    assert result.status == "error"
    assert "The log of the FileSink 'files' cannot be read" in result.summary


def test_a_batch_without_rows_needs_no_files(scratch, folder):
    stream = sales_stream(
        FileSink(str(folder), "json"), DeltaAppend(), function=lambda sales: sales.where("amount > 4")
    )
    scratch.run(stream, ARRIVALS[:2])
    assert check(scratch, stream).status == "pass"


@pytest.mark.parametrize(("batch", "status"), [(2, "pass"), (3, "error")])
def test_a_table_may_be_one_batch_ahead(scratch, table, batch, status):
    """A run that is killed before the main table commits leaves it one batch ahead."""
    stream = sales_stream(JdbcSink(str(table)))
    scratch.run(stream, ARRIVALS[:2])
    set_batch(table, batch)
    result = check(scratch, stream)
    assert result.status == status
    if status == "error":
        assert "JdbcSink 'jdbc' ends at batch 3, and the checkpoint ends at batch 1" in result.summary


@pytest.mark.campaign
def test_a_database_that_does_not_answer_leaves_the_rest_compared(scratch, table):
    stream = sales_stream(JdbcSink(str(table)))
    scratch.run(stream, ARRIVALS[:2])
    assert check(scratch, stream).status == "pass"
    scratch.run(stream, ARRIVALS[2:])
    scratch.databases["default"] = replace(table.server.database, port=1)
    result = check(scratch, stream)
    assert (result.status, result.numbers["findings"]) == ("unknown", 0)
    assert "1 batch: offsets, ledger and tables agree." in result.summary
    assert "JdbcSink 'jdbc' does not report its newest batch" in result.summary
    position = StreamRecords(scratch.lake, stream.name).checked().position
    assert (position.batch, position.sinks) == (2, {"jdbc": 1})
    scratch.databases["default"] = table.server.database
    set_batch(table, 0)
    scratch.run(stream, [sales(("d", 1))])
    scratch.databases["default"] = replace(table.server.database, port=1)
    lost = check(scratch, stream)
    assert lost.status == "error"
    assert "ended at batch 0 when a run began" in lost.summary

"""What all sinks have in common that are not tables: status, the check `exactly_once`, and their place in the docs."""

from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from tests.servers.postgres import PASSWORD, VARIABLE
from tests.sinks.streams import Log, sales, sales_stream
from tidemill import (
    BatchSink,
    ConsoleSink,
    DeltaAppend,
    FileSink,
    ForeachSink,
    JdbcSink,
    KafkaSink,
    MemorySink,
)
from tidemill.checks.evaluation import evaluate
from tidemill.definitions.sink import SinkContext
from tidemill.run.decide.status import status_of
from tidemill.sinks.debug_sinks import DebugSink
from tidemill.sinks.external_sink import ExternalSink
from tidemill.sinks.shared_append import SharedAppend
from tidemill.storage.table_ref import TableRef
from tidemill.target.target import KafkaCluster

DOCS = Path(__file__).parents[2] / "docs"
AT_LEAST_ONCE = {
    BatchSink: BatchSink(print),
    ForeachSink: ForeachSink(Log("calls")),
    KafkaSink: KafkaSink("sales"),
    ConsoleSink: ConsoleSink(debug=True),
    MemorySink: MemorySink("rows", debug=True),
}


def kinds_below(base):
    for kind in base.__subclasses__():
        if kind.__module__.startswith("tidemill."):
            yield kind
            yield from kinds_below(kind)


@pytest.fixture
def topic(broker, scratch):
    scratch.clusters["default"] = KafkaCluster(bootstrap=broker.bootstrap)
    return f"t-{uuid4().hex[:8]}"


def check_reports(scratch, stream):
    """Run a stream twice, and check what is reported about it."""
    results = scratch.run(stream, [sales(("a", 5), ("b", 3)), sales(("c", 7))])
    assert [result.total("rows_written") for result in results] == [2, 1]
    status = status_of(stream, scratch.target)
    assert (status.state, status.last_batch) == ("idle", 1)
    checks = {check.name: check for check in evaluate(stream, scratch.target, datetime.now(UTC))}
    assert checks["exactly_once"].passed
    assert checks["exactly_once"].numbers["batches_compared"] == 2
    assert [name for name, check in checks.items() if not check.passed] == []


TABLES = pytest.mark.parametrize(
    "tables",
    [
        pytest.param((), id="alone"),
        pytest.param((DeltaAppend(),), id="with a table", marks=pytest.mark.campaign),
    ],
)


@TABLES
def test_status_and_checks_know_files_and_writers(scratch, tmp_path, tables):
    sinks = FileSink(str(tmp_path / "files"), "json"), ForeachSink(Log(str(tmp_path / "calls")))
    check_reports(scratch, sales_stream(*sinks, *tables))


@TABLES
@pytest.mark.kafka
def test_status_and_checks_know_messages(scratch, broker, topic, tables):
    broker.create_topic(topic, partitions=1)
    check_reports(scratch, sales_stream(KafkaSink(topic, value="json"), *tables))


@TABLES
def test_status_and_checks_know_rows_in_postgres(scratch, postgres, monkeypatch, tables):
    monkeypatch.setenv(VARIABLE, PASSWORD)
    scratch.databases["default"] = postgres.database
    table = postgres.new_table("sales")
    check_reports(scratch, sales_stream(JdbcSink(str(table)), *tables))
    assert table.rows() == {("a", 5): 1, ("b", 3): 1, ("c", 7): 1}


@pytest.mark.parametrize("sink", AT_LEAST_ONCE.values(), ids=lambda sink: type(sink).__name__)
def test_a_sink_that_does_not_know_its_batches_is_written_at_least_once(sink):
    assert sink.delivery == "at least once"
    assert sink.last_batch(SinkContext(TableRef.at("t")), "query") is None


def test_every_kind_is_in_the_guarantees_and_its_delivery_is_tested():
    writes = (DOCS / "guarantees.md").read_text().split("## Writes")[1].split("Tests:")[0]
    kinds = {*kinds_below(ExternalSink)} - {DebugSink, SharedAppend}
    assert kinds == {*AT_LEAST_ONCE, FileSink, JdbcSink}
    assert [kind.__name__ for kind in kinds if f"`{kind.__name__}`" not in writes] == []

"""The delivery that each kind of sink states, proved by a batch that is written twice."""

import pytest

from tests.servers.postgres import PASSWORD, VARIABLE
from tests.support.recorded import calls, recording
from tidemill import DeltaAppend, DeltaMerge, DeltaOverwrite, FileSink, JdbcSink
from tidemill.definitions.sink import BatchIdentity, CommitMetadata, SinkBatch, SinkContext
from tidemill.run.spark.engine import session_of
from tidemill.sinks.external_sink import CommitTable
from tidemill.storage.table_ref import TableRef
from tidemill.testing import multiset

SALE = "shop STRING, amount BIGINT"
SALES = [("a", 5), ("b", 3)]
BATCH = BatchIdentity("shops/sales", "query", 0)
KINDS = {
    "append": (DeltaAppend(), multiset(SALES)),
    "merge": (DeltaMerge(keys=["shop"], sequence_by="amount"), multiset((*sale, False) for sale in SALES)),
    "merge by batch": (DeltaMerge(keys=["shop"]), multiset((*sale, False) for sale in SALES)),
    "overwrite": (DeltaOverwrite(), multiset(SALES)),
    "commits": (CommitTable(), multiset([("query", 0, 2)])),
}


@pytest.fixture
def write_twice(engine, tmp_path):
    """Write a batch twice into a sink; return the sink's context."""

    def write(sink, target=None):
        spark = engine.new()
        spark.conf.set("spark.sql.shuffle.partitions", "1")
        rows = spark.createDataFrame(SALES, SALE)
        context = SinkContext(TableRef.at(tmp_path / "table"), sink.connection(target))
        sink.check(context, rows.schema)
        sink.prepare(spark, context, rows.schema)
        assert sink.last_batch(context, "query") is None
        for _ in range(2):
            sink.write(rows, SinkBatch(BATCH, context, CommitMetadata(0, "plan")))
        return context

    return write


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_takes_a_batch_exactly_once_and_knows_it(write_twice, kind):
    sink, expected = KINDS[kind]
    context = write_twice(sink)
    rows = context.table.open().to_pyarrow_table().to_pylist()
    assert sink.delivery == "exactly once"
    assert multiset(tuple(row.values())[: len(next(iter(expected)))] for row in rows) == expected
    assert sink.last_batch(context, "query") == 0
    assert sink.last_batch(context, "another query") is None


def test_files_have_a_batch_exactly_once_and_know_it(write_twice, engine, tmp_path):
    sink = FileSink(str(tmp_path / "files"))
    context = write_twice(sink)
    with session_of(engine) as spark:
        rows = spark.read.parquet(str(tmp_path / "files")).select("shop", "amount").collect()
    assert sink.delivery == "exactly once"
    assert multiset(map(tuple, rows)) == multiset(SALES)
    assert sink.last_batch(context, "query") == 0
    assert sink.last_batch(context, "another query") is None


def test_postgres_takes_a_batch_exactly_once_and_knows_it(write_twice, scratch, postgres, monkeypatch):
    monkeypatch.setenv(VARIABLE, PASSWORD)
    scratch.databases["default"] = postgres.database
    table = postgres.new_table("sales")
    sink = JdbcSink(str(table))
    context = write_twice(sink, scratch.target)
    assert sink.delivery == "exactly once"
    assert table.rows() == multiset(SALES)
    assert sink.last_batch(context, "query") == 0
    assert sink.last_batch(context, "another query") is None


def test_a_function_is_called_at_least_once_with_the_identity_of_the_batch(write_twice, tmp_path):
    sink = recording(tmp_path / "calls", "shop", "amount")
    context = write_twice(sink)
    first, again = calls(tmp_path / "calls")
    assert sink.delivery == "at least once"
    assert first == again
    assert (first.stream, first.query_id, first.batch_id) == ("shops/sales", "query", 0)
    assert first.rows == multiset(SALES)
    assert sink.last_batch(context, "query") is None

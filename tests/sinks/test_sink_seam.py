"""Sinks that are no tables, as declared; and the seam: outside its room a sink is asked for properties only."""

import ast
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from tests.support.raising import raises
from tidemill import (
    BackfillBy,
    BatchSink,
    Checks,
    DeltaAppend,
    DeltaMerge,
    Feed,
    Json,
    Pipeline,
    QueryOptions,
)
from tidemill.definitions.sink import TableSink
from tidemill.operations.core.staging import check_has_rows

LIBRARY = Path(__file__).parents[2] / "tidemill"
KINDS = {
    "BatchSink",
    "CommitTable",
    "ConsoleSink",
    "DebugSink",
    "DeltaAppend",
    "DeltaMerge",
    "DeltaOverwrite",
    "DeltaSink",
    "ExternalSink",
    "FileSink",
    "ForeachSink",
    "JdbcSink",
    "KafkaSink",
    "MemorySink",
    "SharedAppend",
}


def send(rows, batch):
    pass


def stream(sink, **declared):
    feed = Feed("orders", format=Json("id STRING, at TIMESTAMP"))
    return Pipeline("shop").stream(source=feed, sink=sink, name="orders", **declared)(lambda events: events)


def test_a_stream_with_one_table_beside_a_function_has_that_table_as_its_main_one():
    table = DeltaAppend()
    orders = stream([table, BatchSink(send)])
    assert [sink.name for sink in orders.sinks] == ["send", "main"]
    assert (orders.tables, orders.external_sinks) == ((table,), (BatchSink(send),))
    assert orders.main is table
    assert [sink.delivery for sink in orders.sinks] == ["at least once", "exactly once"]


def test_a_stream_without_a_table_gets_a_table_of_its_commits():
    orders = stream([BatchSink(send, name="first"), BatchSink(send, name="second")])
    assert [sink.name for sink in orders.sinks] == ["first", "second", "main"]
    assert isinstance(orders.main, TableSink)
    assert (orders.main.has_rows, orders.main.only_appends, orders.main.native) == (False, True, False)


@pytest.mark.parametrize("reading", ["reading", "changes", "static"])
def test_a_table_of_commits_is_no_source(reading):
    with raises("argument-invalid", "shop/orders", "DeltaAppend()"):
        getattr(stream(BatchSink(send)), reading)()


@pytest.mark.parametrize("mode", ["append", "update", "complete"])
def test_a_function_takes_every_output_mode(mode):
    upstream = stream(DeltaAppend())
    options = QueryOptions(output_mode=mode)
    counts = Pipeline("shop").stream(source=upstream, sink=BatchSink(send), query=options, name="counts")
    assert counts(lambda orders: orders.groupBy("id").count()).main.has_rows is False


@pytest.mark.parametrize(
    ("declare", "code", "value"),
    [
        (lambda: BatchSink("send"), "argument-invalid", "BatchSink: function"),
        (lambda: BatchSink(partial(send)), "name-invalid", "sink name ''"),
        (lambda: stream(BatchSink(send, name="main")), "argument-invalid", "'main'"),
        (
            lambda: stream([BatchSink(send, name="main"), DeltaAppend(name="copy")]),
            "argument-invalid",
            "'main'",
        ),
        (lambda: stream([BatchSink(send), DeltaAppend(name="copy")]), "sink-name-taken", "copy"),
        (lambda: stream([BatchSink(send), BatchSink(send)]), "sink-name-taken", "send"),
        (lambda: stream(BatchSink(send), backfill_by=BackfillBy("at")), "argument-invalid", "backfill_by"),
        (
            lambda: stream(BatchSink(send), checks=Checks(freshness="1 hour", event_time="at")),
            "argument-invalid",
            "event_time",
        ),
    ],
)
def test_a_sink_that_is_declared_wrongly_is_refused(declare, code, value):
    with raises(code, value):
        declare()


def test_what_has_no_rows_cannot_be_computed_again():
    with raises("backfill-not-possible", "Fix: ", "tidemill reset shop/orders"):
        check_has_rows(stream(BatchSink(send)))
    check_has_rows(stream([BatchSink(send), DeltaMerge(keys=["id"], sequence_by="at")]))


def test_outside_the_room_no_code_asks_for_the_class_of_a_sink():
    asking = []
    for path in sorted(LIBRARY.rglob("*.py")):
        if path.is_relative_to(LIBRARY / "sinks"):
            continue
        asking += [f"{path.relative_to(LIBRARY)}:{line}" for line in classes_asked_for(path.read_text())]
    assert asking == []


def classes_asked_for(code: str) -> list[int]:
    """The lines that compare the class of something with a kind of sink."""
    lines = []
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                asked = kinds
            case ast.MatchClass(cls=asked) | ast.Compare(comparators=[asked, *_]):
                pass
            case _:
                continue
        names = {part.id for part in ast.walk(asked) if isinstance(part, ast.Name)}
        names |= {part.attr for part in ast.walk(asked) if isinstance(part, ast.Attribute)}
        lines += [node.lineno if hasattr(node, "lineno") else asked.lineno] * bool(names & KINDS)
    return lines


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(sink, DeltaMerge)",
        "isinstance(sink, (str, tidemill.DeltaAppend))",
        "type(sink) is DeltaOverwrite",
        "match sink:\n    case DeltaMerge(): ...",
    ],
)
def test_every_way_to_ask_for_the_class_is_seen(code):
    assert classes_asked_for(code)


def test_every_kind_of_sink_is_known_here():
    declared = {
        node.name
        for path in (LIBRARY / "sinks").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Sink") for base in node.bases)
    }
    assert declared == KINDS


@pytest.mark.parametrize(
    ("sink", "missing"),
    [
        (DeltaMerge(keys=["id", "shop"], sequence_by="n"), "shop"),
        (DeltaMerge(keys=["id"], sequence_by="at"), "at"),
        (DeltaMerge(keys=["id"], sequence_by="n", scd_type=2, valid_by="day"), "day"),
    ],
    ids=["keys", "sequence_by", "valid_by"],
)
def test_a_merge_refuses_an_output_without_one_of_its_columns(sink, missing):
    output = StructType([StructField("id", StringType()), StructField("n", IntegerType())])
    with raises("merge-column-missing", f"'{missing}'", "['id', 'n']"):
        sink.table_schema(output)
    names = sink.table_schema(StructType([*output, StructField(missing, StringType())])).names
    assert names[:3] == ["id", "n", missing]

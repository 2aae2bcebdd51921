"""Streams declared in SQL: their sources, their code version, and what is refused at import."""

import pytest

from tests.support.raising import raises
from tidemill import DeltaAppend, DeltaSource, Pipeline, RateSource
from tidemill.definitions.code_version import code_version

ROWS = RateSource()
SINK = DeltaAppend()


def declared(text, source=ROWS):
    return Pipeline("shop").sql("big", text, source=source, sink=SINK)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT * FROM orders", ["orders"]),
        ("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders", ["orders"]),
        ("SELECT * FROM Orders o JOIN clicks USING (id)", ["orders", "clicks"]),
        ("SELECT x FROM orders, LATERAL explode(items) AS t(x)", ["orders"]),
        ("SELECT id FROM orders WHERE id IN (SELECT id FROM fraud) UNION ALL SELECT 1", ["orders", "fraud"]),
    ],
)
def test_the_tables_of_the_text_are_its_sources(text, names):
    stream = declared(text, ROWS if len(names) == 1 else dict.fromkeys(names, ROWS))
    assert sorted(stream.sources) == sorted(names)
    assert declared(text, dict.fromkeys(names, ROWS)).sources.keys() == stream.sources.keys()


EVENTS, PEOPLE = DeltaSource(table="main.raw.events"), DeltaSource(table="main.raw.people").static()


@pytest.mark.parametrize(
    ("text", "renamed"),
    [
        ("SELECT * FROM main.raw.events", "SELECT * FROM e"),
        ("SELECT main.raw.events.id FROM Main.`raw`.Events", "SELECT e.id FROM e"),
        ("SELECT e.id FROM main.raw.events AS e", "SELECT e.id FROM e AS e"),
        ("SELECT 'main.raw.events' FROM main.raw.events -- main.raw.events", None),
        ("SELECT x.main.raw.events FROM main.raw.events AS x", "SELECT x.main.raw.events FROM e AS x"),
        (
            "WITH a AS (SELECT * FROM e) SELECT * FROM a, main.raw.events",
            "WITH a AS (SELECT * FROM e) SELECT * FROM a, e",
        ),
    ],
)
def test_a_table_of_a_catalog_is_read_by_its_name(text, renamed):
    stream = declared(text, {"e": EVENTS})
    assert stream.function.text == (renamed or "SELECT 'main.raw.events' FROM e -- main.raw.events")
    assert [*stream.sources] == ["e"]


def test_a_single_source_by_name_has_the_name_of_the_table():
    stream = declared("SELECT * FROM main.raw.events", EVENTS)
    assert (stream.function.text, [*stream.sources]) == ("SELECT * FROM events", ["events"])
    both = {"events": EVENTS, "people": PEOPLE}
    joined = declared("SELECT * FROM events JOIN main.raw.people USING (id)", both)
    assert joined.function.text == "SELECT * FROM events JOIN people USING (id)"


@pytest.mark.parametrize("source", [EVENTS, {"events": EVENTS}, {"events": ROWS}])
@pytest.mark.parametrize("table", ["main.raw.people", "raw.events"])
def test_a_table_that_no_source_declares_is_refused(source, table):
    with raises("sql-invalid", table, "DeltaSource(table="):
        declared(f"SELECT * FROM {table}", source)  # noqa: S608


def test_a_text_may_have_a_file_of_its_own(tmp_path):
    file = tmp_path / "big.sql"
    file.write_text("SELECT *\nFROM orders\n")
    stream = declared(file)
    assert stream.declared_at == "big.sql:1"
    assert declared("SELECT * FROM orders").declared_at.startswith("test_sql.py:")
    before = code_version(stream)
    file.write_text("SELECT value\nFROM orders\n")
    assert code_version(declared(str(file))) != before
    with raises("sql-invalid", "shop/big", "missing.sql"):
        declared("missing.sql")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("select value -- the number\n  from orders /* of the shop */ where name='a  b'", True),
        ("select value from orders where name = 'a  b'", True),
        ("select value from orders where name = 'a b'", False),
        ("select value from orders where name = 'a  b' -- and more", True),
        ("select /*+ REPARTITION(3) */ value from orders where name = 'a  b'", False),
        ("select value + 1 from orders where name = 'a  b'", False),
        ("select value from orders where name = '--a  b'", False),
    ],
)
def test_only_the_code_of_a_text_changes_its_version(text, same):
    before = code_version(declared("select value\nfrom orders where name = 'a  b'"))
    assert (code_version(declared(text)) == before) is same


@pytest.mark.parametrize(
    ("text", "source", "code", "words"),
    [
        ("SELECT *\nFROM orders WHER value > 1 1", ROWS, "sql-invalid", "line 2 of its SQL text"),
        ("INSERT INTO a SELECT * FROM orders", ROWS, "sql-invalid", "not one SELECT"),
        ("SELECT 1 FROM orders; SELECT 2 FROM orders", ROWS, "sql-invalid", "not one SELECT"),
        ("  ", ROWS, "sql-invalid", "write a SELECT"),
        ("SELECT * FROM shop.orders", ROWS, "sql-invalid", "customers.static()"),
        ("SELECT * FROM orders, clicks", ROWS, "source-arguments-differ", "reads 2 tables"),
        ("SELECT * FROM orders", {"order": ROWS}, "source-arguments-differ", "tables of the SQL text"),
        ("SELECT * FROM orders", {"orders": ROWS, "b": ROWS}, "source-arguments-differ", "['b', 'orders']"),
    ],
)
def test_a_text_that_cannot_be_a_stream_is_refused_at_import(text, source, code, words):
    with raises(code, "shop/big", words):
        declared(text, source)


def test_the_other_arguments_are_those_of_a_stream():
    stream = Pipeline("shop").sql(
        "big", "SELECT * FROM orders", source=ROWS, sink=SINK, description="Big ones.", tags={"team": "shop"}
    )
    assert (stream.description, stream.tags) == ("Big ones.", {"team": "shop"})
    with raises("argument-not-known", "trigger"):
        Pipeline("shop").sql("big", "SELECT * FROM orders", source=ROWS, sink=SINK, trigger="1s")

"""Tables of a real Postgres: what fits them, how they are created, and how a batch is taken once. No JVM."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    CalendarIntervalType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from tests.servers.postgres import PASSWORD, VARIABLE, PostgresRows
from tests.support.raising import raises
from tidemill import JdbcSink
from tidemill.definitions.sink import BatchIdentity, SinkContext
from tidemill.errors import TransientError
from tidemill.sinks.postgres import database as connections
from tidemill.sinks.postgres.database import server_version, transaction
from tidemill.sinks.postgres.tables import PostgresTable
from tidemill.sinks.postgres.write import _newer, append, upsert
from tidemill.storage.table_ref import TableRef
from tidemill.text.secret import Secret

KEYED = {"keys": ["id"], "sequence_by": "seq"}


def output_of(**columns):
    output = StructType()
    for name, kind in columns.items():
        output.add(name, kind)
    return output


ORDERS = output_of(id=LongType(), seq=IntegerType(), name=StringType())


@pytest.fixture
def table(postgres, monkeypatch):
    monkeypatch.setenv(VARIABLE, PASSWORD)
    return postgres.new_table("orders")


def context(table, **changed):
    return SinkContext(TableRef.at("t"), replace(table.server.database, **changed))


def prepare(table, output=ORDERS, **declared):
    JdbcSink(str(table), **declared).prepare(None, context(table), output)


def write(table, *lines, batch=0, keys=("id",), sequence_by=None, query="q", database=None):
    """Write rows as the sink does; return whether the batch was taken."""
    written = PostgresTable(table.schema, table.name, keys)
    with transaction(database or table.server.database) as connection:
        if not written.begin(connection, BatchIdentity("shop/orders", query, batch), "jdbc"):
            return False
        columns = ["id", "seq", "name"]
        if keys:
            upsert(connection, written, columns, lines, sequence_by=sequence_by, by_bytes=False)
        else:
            append(connection, written, columns, lines)
        return True


def test_a_created_table_has_the_columns_and_the_key(table):
    output = output_of(
        id=LongType(),
        seq=IntegerType(),
        at=TimestampType(),
        exact=DecimalType(9, 2),
        tags=ArrayType(LongType()),
    )
    prepare(table, output.add("_batch", StructType()), **KEYED)
    prepare(table, output, **KEYED)
    columns = PostgresRows(table.server, "information_schema", "columns")
    created = columns.rows("table_schema, column_name, data_type, is_nullable")
    assert {row[1:] for row in created if row[0] == table.schema and "_id" not in row[1]} == {
        ("id", "bigint", "NO"),
        ("seq", "integer", "YES"),
        ("at", "timestamp with time zone", "YES"),
        ("exact", "numeric", "YES"),
        ("tags", "jsonb", "YES"),
        ("sink", "text", "NO"),
        ("stream", "text", "NO"),
        ("table_name", "text", "NO"),
        ("written_at", "timestamp with time zone", "NO"),
    }


def test_a_table_is_created_once_by_many_at_the_same_time(table):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: prepare(table, **KEYED), range(8)))
    assert table.rows() == table.batches.rows() == {}


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ("id bigint primary key, seq int", ("no column 'name'", "ADD COLUMN")),
        ("id int primary key, seq int, name text", ("'id' is bigint", "has integer")),
        ("id numeric(18) primary key, seq int, name text", ("'id' is bigint", "numeric(18,0)")),
        ("id bigint primary key, seq int, name bytea", ("'name' is string", "bytea")),
        (
            "id bigint primary key, seq int, name text generated always as ('x') stored",
            ("'name'", "generates it"),
        ),
        ("id bigint primary key, seq int, name text, shop text not null", ("'shop'", "a default")),
        ("id bigint, seq int, name text", ("no unique index", "CREATE UNIQUE INDEX")),
        ("id bigint, seq int, name text, unique (id, seq)", ("no unique index",)),
        ("id bigint, seq int, name text, unique (id) deferrable", ("no unique index",)),
    ],
)
def test_a_table_that_does_not_fit_is_refused(table, columns, names):
    table.server.execute(f"CREATE TABLE {table} ({columns})")
    with raises("sink-table-unsuitable", str(table), "'jdbc'", "Fix: ", *names):
        JdbcSink(str(table), **KEYED).check(context(table), ORDERS)


@pytest.mark.parametrize(
    "columns",
    [
        "id numeric(19) unique, seq bigint, name varchar(9)",
        "id numeric primary key, seq int, name jsonb, shop text not null default 'a'",
        "name uuid, seq int, id bigint, unique (id)",
        "id bigint, seq int, name text, primary key (id)",
    ],
)
def test_a_table_that_fits_is_taken(table, columns):
    table.server.execute(f"CREATE TABLE {table} ({columns})")
    JdbcSink(str(table), **KEYED).check(context(table), ORDERS)


def test_a_view_and_a_missing_schema_are_refused(table):
    table.server.execute(f"CREATE VIEW {table} AS SELECT 1 AS id, 2 AS seq, 'a' AS name")
    with raises("sink-table-unsuitable", "is no table"):
        prepare(table, **KEYED)
    with raises("sink-table-unsuitable", "CREATE SCHEMA nowhere"):
        prepare(replace(table, schema="nowhere"), **KEYED)


@pytest.mark.parametrize(
    ("output", "names"),
    [
        (output_of(id=LongType()), ("no column 'seq'",)),
        (output_of(id=LongType(), seq=CalendarIntervalType()), ("'seq' is interval",)),
        (output_of(id=LongType(), seq=ByteType(), **{"ä" * 32: LongType()}), ("more than 63 bytes",)),
    ],
)
def test_columns_that_no_table_can_have_are_refused(table, output, names):
    with raises("sink-columns-unsuitable", "'jdbc'", "Fix: ", *names):
        JdbcSink(str(table), **KEYED).check(context(table), output)


def test_a_batch_is_taken_once_whatever_is_repeated(table):
    prepare(table, **KEYED)
    assert JdbcSink(str(table)).last_batch(context(table), "q") is None
    assert write(table, ("1", "1", "a"))
    assert not write(table, ("1", "1", "b"))
    assert write(table, ("1", "2", "c"), batch=1)
    assert not write(table, ("2", "1", "d"), batch=0)
    assert write(table, ("3", "1", "e"), query="another")
    assert table.rows() == {(1, 2, "c"): 1, (3, 1, "e"): 1}
    assert JdbcSink(str(table)).last_batch(context(table), "q") == 1
    assert JdbcSink(str(table), name="other").last_batch(context(table), "q") is None
    assert JdbcSink(f"{table}_2").last_batch(context(table), "q") is None


def test_writers_of_one_batch_at_the_same_time_write_it_once(table):
    prepare(table)
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: write(table, ("1", "1", "a"), keys=()), range(8)))
    assert sorted(taken) == [False] * 7 + [True]
    assert table.rows() == {(1, 1, "a"): 1}


def test_rows_with_a_lower_sequence_are_ignored(table):
    prepare(table, **KEYED)
    for batch, line in enumerate([("1", "5", "a"), ("1", "4", "b"), ("1", "5", "c"), ("2", None, "d")]):
        write(table, line, batch=batch, sequence_by="seq")
    assert table.rows() == {(1, 5, "c"): 1, (2, None, "d"): 1}
    write(table, ("2", "1", "e"), batch=9, sequence_by="seq")
    assert table.rows() == {(1, 5, "c"): 1, (2, 1, "e"): 1}


def test_a_string_orders_by_its_bytes_as_in_spark(table):
    prepare(table, output_of(id=LongType(), name=StringType()), keys=["id"], sequence_by="name")
    written = PostgresTable(table.schema, table.name, ("id",))
    for name in ("a", "B"):  # in the collation of most databases, B is higher
        with transaction(table.server.database) as connection:
            upsert(connection, written, ["id", "name"], [("1", name)], sequence_by="name", by_bytes=True)
    assert table.rows() == {(1, "a"): 1}
    # The server of the tests has collations by bytes only, so the order above is no proof.
    assert _newer("name", by_bytes=True).as_string().endswith('EXCLUDED."name" COLLATE "C"')


def test_a_table_of_keys_alone_has_each_once(table):
    prepare(table, output_of(id=LongType()), keys=["id"], sequence_by="id")
    written = PostgresTable(table.schema, table.name, ("id",))
    for _ in range(2):
        with transaction(table.server.database) as connection:
            upsert(connection, written, ["id"], [("1",), ("2",)], sequence_by=None, by_bytes=False)
    assert table.rows() == {(1,): 1, (2,): 1}


def test_an_error_in_a_batch_leaves_nothing_of_it(table):
    prepare(table, **KEYED)
    with raises("sink-write-refused", "invalid input syntax", "no row of the batch") as raised:
        write(table, ("1", "1", "a"), ("x", "1", "b"))
    assert "\n" not in str(raised.value)
    assert table.rows() == table.batches.rows() == {}
    assert write(table, ("1", "1", "a"))


def test_a_row_that_another_transaction_holds_is_worth_a_retry(table, monkeypatch):
    monkeypatch.setattr(connections, "LOCK_SECONDS", 0.1)
    prepare(table, **KEYED)
    known = {"host": "127.0.0.1", "port": table.server.port, "dbname": "postgres", "user": "tidemill"}
    with psycopg.connect(**known, password=PASSWORD) as other:
        other.execute(f"LOCK TABLE {table.batches}")
        with raises("database-unavailable", "lock timeout") as raised:
            write(table, ("1", "1", "a"))
    assert isinstance(raised.value, TransientError)


def test_a_role_that_may_not_create_tables_needs_none(table, monkeypatch):
    monkeypatch.setenv("TEST_WRITER_PASSWORD", "writer-pass")
    role = f"writer_{table.schema}"
    table.server.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'writer-pass'")
    table.server.execute(f"GRANT USAGE ON SCHEMA {table.schema} TO {role}")
    as_writer = context(table, username=role, password=Secret("${TEST_WRITER_PASSWORD}", "password"))
    with raises("database-access-refused", "permission denied", "grant"):
        JdbcSink(str(table), **KEYED).prepare(None, as_writer, ORDERS)
    prepare(table, **KEYED)
    table.server.execute(f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA {table.schema} TO {role}")
    JdbcSink(str(table), **KEYED).prepare(None, as_writer, ORDERS)
    assert write(table, ("1", "1", "a"), sequence_by="seq", database=as_writer.connection)
    assert JdbcSink(str(table), **KEYED).last_batch(as_writer, "q") == 0


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"password": "not-it-at-all"}, "password authentication failed"),
        ({"database": "nowhere"}, "does not exist"),
        ({"username": "nobody_here"}, "password authentication failed"),
        ({"sslmode": "require"}, "SSL"),
    ],
)
def test_access_that_is_refused_is_one_line_without_the_password(table, changed, reason):
    database = replace(table.server.database, **changed)
    with raises("database-access-refused", "127.0.0.1", reason, "tidemill.toml") as raised:
        server_version(database)
    assert "\n" not in str(raised.value)
    assert "not-it-at-all" not in str(raised.value)
    assert PASSWORD not in str(raised.value)


def test_a_server_that_does_not_answer_is_worth_a_retry(table):
    with raises("database-unavailable", "127.0.0.1:1/", "onnection refused") as raised:
        server_version(replace(table.server.database, port=1))
    assert isinstance(raised.value, TransientError)
    assert "\n" not in str(raised.value)

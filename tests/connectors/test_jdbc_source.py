"""Rows of a real Postgres as a snapshot next to a stream, over runs between which they change."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from tests.servers.connect import HOME, connect_server
from tests.servers.postgres import PASSWORD, VARIABLE, PostgresServer
from tests.support.checked import failed_checks
from tests.support.raising import raises
from tests.support.small import SMALL
from tidemill import DeltaAppend, FileSource, JdbcSource, Pipeline
from tidemill.connectors.connector import SourceContext
from tidemill.connectors.registry import connector_of
from tidemill.operations.edits.code_changes import code_changes
from tidemill.run.decide.status import status_of
from tidemill.run.spark.classic import explained
from tidemill.run.spark.engine import session_of
from tidemill.target.spark_settings import SparkSettings
from tidemill.testing import multiset
from tidemill.text.secret import Secret

ORDER = "customer STRING, amount BIGINT"
FIRST, SECOND = [("a", 1), ("b", 2), ("x", 3)], [("a", 4), ("b", 5), (None, 6)]
CRM = {"table": "crm.customers"}
BEFORE, AFTER = {"a": "Ada", "b": "Bo"}, {"a": "Ann", "x": "Xi"}


class Database:
    """A table of customers, and the target that names its database."""

    def __init__(self, scratch, table):
        self.scratch, self.table = scratch, table

    def replace_customers(self, names):
        values = ", ".join(f"('{customer}', '{name}')" for customer, name in names.items())
        self.table.server.execute(f"DROP TABLE IF EXISTS {self.table}")
        self.table.server.execute(f"CREATE TABLE {self.table} (customer, name) AS VALUES {values}")

    def create(self, query):
        self.table.server.execute(f"CREATE TABLE {self.table} AS {query}")

    def stream(self, source, how="left"):
        orders = FileSource(path=str(self.scratch.landing), format="json", schema=ORDER)
        return Pipeline("shop").stream(
            source={"orders": orders, "customers": source}, sink=DeltaAppend(), name=how
        )(
            lambda orders, customers: orders.join(customers, "customer", how).select(
                "customer", "amount", "name"
            )
        )

    def order(self, number, rows):
        self.scratch.landing.mkdir(exist_ok=True)
        lines = [json.dumps({"customer": customer, "amount": amount}) for customer, amount in rows]
        (self.scratch.landing / f"{number}.json").write_text("\n".join(lines))

    def load(self, source, spark):
        return connector_of(source).load(source, SourceContext(spark, self.scratch.target), "rows")


@pytest.fixture
def database(postgres, scratch, monkeypatch):
    monkeypatch.setenv(VARIABLE, PASSWORD)
    scratch.databases["default"] = postgres.database
    return Database(scratch, postgres.new_table("customers"))


def joined(*runs, how="left"):
    """The rows of all runs: each has orders and the names that were there."""
    rows = [(customer, amount, names.get(customer)) for orders, names in runs for customer, amount in orders]
    return multiset(row for row in rows if how == "left" or row[2] is not None)


@pytest.mark.parametrize("how", ["left", "inner"])
def test_each_run_reads_the_rows_that_are_there(scratch, database, how):
    stream = database.stream(JdbcSource(table=str(database.table)), how)
    database.order(1, FIRST)
    database.replace_customers(BEFORE)
    scratch.run(stream)
    database.replace_customers(AFTER)
    assert scratch.run(stream)[0].outcome == "idle", "other rows of a snapshot start no run"
    database.order(2, SECOND)
    (result,) = scratch.run(stream)
    assert scratch.rows(stream) == joined((FIRST, BEFORE), (SECOND, AFTER), how=how)
    assert result.lineage["name"] == (("customers", "name"),)
    assert status_of(stream, scratch.target).state == "idle"
    assert failed_checks(scratch, stream) == []
    (change,) = code_changes([stream], scratch.target, scratch.engine)
    assert change.kind == "nothing"


def test_a_query_is_read_whatever_lines_and_comments_it_has(scratch, database):
    lines = (
        "SELECT customer, upper(name) || ' -- not a comment' AS name  -- a comment",
        f"FROM {database.table} /* and",
        "another one */ WHERE name ~* '^[ab]' AND '{\"a\":1}'::jsonb @> '{\"a\":1}';  -- the end",
    )
    query = "\n".join(lines)
    stream = database.stream(JdbcSource(query=query))
    database.order(1, FIRST)
    database.replace_customers(BEFORE | {"x": "Xi"})
    scratch.run(stream)
    names = {customer: f"{name.upper()} -- not a comment" for customer, name in BEFORE.items()}
    assert scratch.rows(stream) == joined((FIRST, names))


def test_parts_have_each_row_once(scratch, database):
    days = "SELECT n, date '2026-01-01' + n AS day FROM generate_series(-50, 49) AS n"
    database.create(f"{days} UNION ALL SELECT NULL, NULL")
    numbers = JdbcSource(
        table=str(database.table), partition_column="n", lower_bound=-10, upper_bound=10, num_partitions=3
    )
    days = replace(
        numbers, partition_column="day", lower_bound=date(2026, 1, 1), upper_bound=date(2026, 1, 21)
    )
    expected = multiset([*((n,) for n in range(-50, 50)), (None,)])
    with session_of(scratch.engine) as spark:
        for source in (numbers, days):
            rows = database.load(source, spark)
            assert multiset(rows.select("n").collect()) == expected
            assert "numPartitions=3" in explained(rows)


def test_values_are_those_of_postgres_and_no_filter_is_left_to_it(scratch, database):
    times = "timestamp '2026-03-29 02:30' AS local, timestamptz '2026-01-01 12:00+01' AS at"
    database.create(f"SELECT 'Ä'::text AS name, 1.50::numeric(5,2) AS price, {times}")
    with session_of(scratch.engine) as spark:
        rows = database.load(JdbcSource(table=str(database.table)), spark)
        late = rows.where("name > 'z'").withColumn("at", rows["at"].cast("bigint"))
        (row,) = late.collect()
        assert dict(rows.dtypes)["local"] == "timestamp_ntz"
        assert "Filter (" in explained(late).partition("== Physical Plan ==")[2]
    noon = int(datetime(2026, 1, 1, 11, tzinfo=UTC).timestamp())
    assert tuple(row) == ("Ä", Decimal("1.50"), datetime(2026, 3, 29, 2, 30), noon)  # noqa: DTZ001


def test_a_query_cannot_write(scratch, database):
    database.replace_customers(BEFORE)
    function = f"{database.table.schema}.forget"
    database.table.server.execute(
        f"CREATE FUNCTION {function}() RETURNS void LANGUAGE sql AS $$ TRUNCATE {database.table} $$"
    )
    stream = database.stream(JdbcSource(query=f"SELECT 'a' AS customer, {function}()::text AS name"))
    database.order(1, FIRST)
    error = scratch.run_all([stream])[0].error
    assert error.code == "database-query-refused"
    assert "read-only transaction" in str(error)
    assert database.table.rows() == multiset(BEFORE.items())


REFUSED = {
    "a table": (CRM, "database-query-refused", '"crm.customers" does not exist'),
    "a column": ({"query": "SELECT absent FROM now()"}, "database-query-refused", '"absent" does not exist'),
    "a port": (CRM | {"database": "closed"}, "database-unavailable", "127.0.0.1:1 refused"),
    "a password": (CRM | {"database": "locked"}, "database-access-refused", "password authentication failed"),
    "a name": (CRM | {"database": "defualt"}, "database-missing", "Did you mean 'default'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_postgres_refuses_is_one_error_with_its_fix(scratch, database, monkeypatch, case):
    source, code, reason = REFUSED[case]
    monkeypatch.setenv("WRONG", "wrong-of-tests")
    known = scratch.databases["default"]
    scratch.databases |= {
        "closed": replace(known, port=1),
        "locked": replace(known, password=Secret("${WRONG}", "")),
    }
    stream = database.stream(JdbcSource(**source))
    database.order(1, FIRST)
    error = scratch.run_all([stream])[0].error
    assert (error.code, reason in str(error)) == (code, True), error
    assert "Fix: " in str(error)
    assert "wrong-of-tests" not in str(error)


def test_a_database_that_does_not_answer_is_transient_and_loses_nothing(scratch, database):
    database.replace_customers(BEFORE)
    stream = database.stream(JdbcSource(table=str(database.table)))
    database.order(1, FIRST)
    scratch.run(stream)
    database.order(2, SECOND)
    working = scratch.databases["default"]
    scratch.databases["default"] = replace(working, port=1)
    assert scratch.run_all([stream])[0].error.transient
    scratch.databases["default"] = working
    database.replace_customers(AFTER)
    scratch.run(stream)
    assert scratch.rows(stream) == joined((FIRST, BEFORE), (SECOND, AFTER))


def test_the_password_is_in_no_plan_and_no_file(scratch, database, tmp_path, capfd):
    database.replace_customers(BEFORE)
    source = JdbcSource(table=str(database.table))
    stream = database.stream(source)
    database.order(1, FIRST)
    (result,) = scratch.run(stream)
    with session_of(scratch.engine) as spark:
        assert PASSWORD not in explained(database.load(source, spark))
    assert PASSWORD not in repr((result, source, stream, scratch.target))
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "manifest.json" for path in written)
    assert [path for path in written if PASSWORD.encode() in path.read_bytes()] == []
    assert PASSWORD not in "".join(capfd.readouterr())


# In a process of its own: pyspark decides once per process between classic and Connect.
CONNECTED = """
import sys
from pathlib import Path
from tests.connectors.test_jdbc_source import BEFORE, FIRST, Database, explained, joined, session_of
from tests.servers.postgres import PASSWORD, PostgresRows, PostgresServer
from tidemill import JdbcSource
from tidemill.engines.engine import SparkEngine
from tidemill.storage.lake import Lake
from tidemill.text.secret import Secret
from tidemill.target.spark_settings import SparkSettings
from tidemill.testing import Scratch

remote, folder, port, schema = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
engine = SparkEngine(SparkSettings(mode="connect", remote=remote, shuffle_partitions=2))
server = PostgresServer(port)
databases = {"default": server.database}
scratch = Scratch(lake=Lake.at(folder / "lake"), landing=folder / "landing", engine=engine, databases=databases)
database = Database(scratch, PostgresRows(server, schema, "customers"))
source = JdbcSource(table=str(database.table))
stream = database.stream(source)
database.order(1, FIRST)
scratch.run(stream)
assert scratch.rows(stream) == joined((FIRST, BEFORE))
with session_of(engine) as spark:
    plan = explained(database.load(source, spark))
    assert "JDBCRelation" in plan and PASSWORD not in plan, plan
wrong = database.stream(JdbcSource(table="crm.absent"), "inner")
(result,) = scratch.run_all([wrong])
assert result.error.code == "database-query-refused", result.error
assert PASSWORD not in str(result.error)
engine.stop()
"""


@pytest.mark.campaign
@pytest.mark.jvm
@pytest.mark.timeout(560)
def test_spark_connect_reads_it_and_shows_no_password(postgres, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, PASSWORD)
    monkeypatch.setenv("SPARK_HOME", str(HOME))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    database = Database(None, postgres.new_table("customers"))
    database.replace_customers(BEFORE)
    (tmp_path / "events").mkdir()
    events = {"enabled": "true", "dir": str(tmp_path / "events"), "compress": "false"}
    conf = SMALL | {f"spark.eventLog.{name}": value for name, value in events.items()}
    settings = SparkSettings(master="local[2]", driver_memory="1g", conf=conf)
    with connect_server(tmp_path, settings) as address:
        arguments = [address, str(tmp_path), str(postgres.port), database.table.schema]
        ran = subprocess.run(
            [sys.executable, "-c", CONNECTED, *arguments], capture_output=True, text=True, check=False
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("events" in path.parts for path in written)
    assert [path for path in written if PASSWORD.encode() in path.read_bytes()] == []


PARTS = {"partition_column": "id", "lower_bound": 0, "upper_bound": 9, "num_partitions": 2}


@pytest.mark.parametrize(
    ("declared", "code", "value"),
    [
        ({}, "arguments-conflict", "query="),
        (CRM | {"query": "SELECT 1"}, "arguments-conflict", "query="),
        ({"table": "customers"}, "argument-invalid", "schema.name"),
        ({"table": 'crm.c" WHERE 1=1; --'}, "argument-invalid", "schema.name"),
        ({"query": ""}, "sql-invalid", "write a SELECT"),
        ({"query": "SELECT 1) AS t; DROP TABLE crm.customers"}, "sql-invalid", "cannot be parsed"),
        ({"query": "SELECT 1; SELECT 2"}, "sql-invalid", "not one SELECT"),
        ({"query": "DELETE FROM crm.customers RETURNING id"}, "sql-invalid", "not one SELECT"),
        (CRM | {"database": ""}, "argument-invalid", "database is ''"),
        (CRM | PARTS | {"num_partitions": None}, "arguments-conflict", "num_partitions"),
        (CRM | PARTS | {"num_partitions": 0}, "argument-invalid", "num_partitions is 0"),
        (CRM | PARTS | {"upper_bound": 0}, "argument-invalid", "upper_bound is 0"),
        (CRM | PARTS | {"upper_bound": date(2026, 1, 1)}, "argument-invalid", "upper_bound"),
        (CRM | PARTS | {"partition_column": ""}, "argument-invalid", "partition_column is ''"),
    ],
)
def test_what_cannot_be_declared_is_refused(declared, code, value):
    with raises(code, "JdbcSource", value):
        JdbcSource(**declared)


def test_it_streams_nothing_and_the_error_says_why_and_what_to_do():
    source = JdbcSource(table="crm.customers")
    with raises("no-streaming-source", "shop/rows", "crm.customers", "no log", "change data capture"):
        Pipeline("shop").stream(source=source, sink=DeltaAppend(), name="rows")(lambda rows: rows)
    with raises("snapshot-not-streamed", "crm.customers"):
        source.with_watermark("at", "1 hour")


@pytest.mark.parametrize("host", ["db.example.com", "::1"])
def test_the_address_has_the_settings_of_the_target_and_no_secret(host, monkeypatch):
    monkeypatch.setenv(VARIABLE, PASSWORD)
    database = PostgresServer(5432).database
    options = replace(database, host=host, database="my db&x", sslmode="require").jdbc_options()
    assert options.pop("password") == PASSWORD
    server = f"[{host}]" if ":" in host else host
    assert options["url"].startswith(f"jdbc:postgresql://{server}:5432/my%20db%26x?sslmode=require&")
    assert PASSWORD not in str(options)

"""Databases of a target: their settings, their secrets, and what a fault in the file is."""

import pytest

from tests.support.raising import raises
from tidemill.target.postgres import PostgresDatabase
from tidemill.target.resolve import resolve
from tidemill.text.secret import Secret

PROD = """
[targets.prod]
lake = "lake"
[targets.prod.postgres.warehouse]
host = "pg.${REGION}"
database = "sales"
username = "${PG_USER}"
password = "${PG_PASSWORD}"
sslmode = "verify-full"
ca_file = "ca.pem"
"""
SECRETS = {"PG_USER": "tidemill-of-eu", "PG_PASSWORD": "hunter2"}


@pytest.fixture
def resolved(tmp_path):
    def resolve_target(text=PROD):
        (tmp_path / "tidemill.toml").write_text(text, encoding="utf-8")
        return resolve("prod", environ={"REGION": "eu"}, start=tmp_path)

    return resolve_target


def test_a_database_of_the_file(resolved, tmp_path, monkeypatch):
    database = resolved().database("warehouse")
    assert database == PostgresDatabase(
        "pg.eu",
        "sales",
        5432,
        Secret("${PG_USER}", ""),
        Secret("${PG_PASSWORD}", ""),
        "verify-full",
        str(tmp_path / "ca.pem"),
    )
    for variable, value in SECRETS.items():
        monkeypatch.setenv(variable, value)
    assert database.connect_arguments() == {
        "host": "pg.eu",
        "port": 5432,
        "dbname": "sales",
        "user": "tidemill-of-eu",
        "password": "hunter2",
        "sslmode": "verify-full",
        "sslrootcert": str(tmp_path / "ca.pem"),
    }


def test_its_secrets_are_shown_nowhere(resolved, monkeypatch):
    for variable, value in SECRETS.items():
        monkeypatch.setenv(variable, value)
    target = resolved()
    database = target.database("warehouse")
    shown = f"{target} {target!r} {database} {database!r} {database.password} {target.settings()}"
    assert not [secret for secret in SECRETS.values() if secret in shown]
    settings = {setting.name: (setting.value, setting.origin) for setting in target.settings()}
    of_file = "tidemill.toml [targets.prod]"
    assert settings["postgres.warehouse.password"] == ("********", f"{of_file} from PG_PASSWORD")
    assert settings["postgres.warehouse.host"] == ("pg.eu", f"{of_file} from REGION")
    assert settings["postgres.warehouse.port"] == ("5432", "default")


def test_a_password_that_code_gives_is_masked_too():
    assert "hunter2" not in repr(PostgresDatabase("h", "d", username="me", password="hunter2"))  # noqa: S106


def test_a_variable_that_is_not_set_is_named_by_the_connection(resolved, monkeypatch):
    monkeypatch.setenv("PG_USER", "me")
    monkeypatch.delenv("PG_PASSWORD", raising=False)
    with raises("variable-missing", "PG_PASSWORD", "postgres.warehouse.password"):
        resolved().database("warehouse").connect_arguments()


def test_a_database_that_is_not_there_is_named(resolved):
    with raises("database-missing", "'warehous'", "Did you mean 'warehouse'?", "postgres.warehous]"):
        resolved().database("warehous")


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ('host = "pg.${REGION}"\n', "", "host is missing"),
        ('database = "sales"\n', "", "database is missing"),
        ('"${PG_PASSWORD}"', '"s3cr3t"', "never the secret"),
        ('"verify-full"', '"verify-ful"', "Did you mean 'verify-full'?"),
        ('sslmode = "verify-full"\n', "", "ca_file is for sslmode"),
        ('database = "sales"', 'database = "sales"\nport = 70000', "at most 65535"),
        ('database = "sales"', 'database = "sales"\ndsn = "x"', "dsn is an unknown key"),
    ],
)
def test_a_fault_in_the_file_is_named_without_the_secret(resolved, right, wrong, fault):
    with raises("config-invalid", "postgres.warehouse", fault) as raised:
        resolved(PROD.replace(right, wrong))
    assert "s3cr3t" not in str(raised.value)

"""What a catalog said, as status, the check and Dagster show it: recorded, and without a JVM."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from tests.orchestration.shop import ORDERS, Shop
from tests.support.raising import raises
from tidemill.checks.evaluation import evaluate
from tidemill.cli.run.status import app
from tidemill.operations.registry import OPERATIONS
from tidemill.orchestration.assets.assets import streaming_assets
from tidemill.orchestration.assets.metadata import definition_metadata, result_metadata
from tidemill.records.registrations import Registration, Registrations
from tidemill.records.stream_records import StreamRecords
from tidemill.run.execute.results import StreamResult

NOW = datetime.now(UTC)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    shop = Shop.make(tmp_path, monkeypatch)
    config = tmp_path / "tidemill.toml"
    config.write_text(config.read_text() + 'catalog = "main"\nschema = "sales"\n')
    return shop


def was(state, detail="", **fields):
    registration = Registration(
        name="main.sales.orders",
        location="/lake/orders",
        state=state,
        asked_at="2026-01-31T12:00:00Z",
        detail=detail,
    )
    return replace(registration, **fields)


def recorded(shop, *tables):
    records = StreamRecords(shop.target.lake, ORDERS)
    sinks = ("main", "quarantine")
    records.write_registrations(Registrations(tables=dict(zip(sinks, tables, strict=False))))


def has_a_table(shop):
    write_deltalake(StreamRecords(shop.target.lake, ORDERS).table().uri, pa.table({"n": [1]}))


def status():
    result = CliRunner().invoke(app, ["shop/orders", "--json"])
    [stream] = json.loads(result.stdout)["streams"]
    return stream["catalog"], result.exit_code, " ".join(result.stderr.split())


def check(shop):
    [orders] = [stream for stream in shop.target.streams() if stream.name == ORDERS]
    [result] = evaluate(orders, shop.target, NOW, names=["in_catalog"])
    return result


@pytest.mark.parametrize(
    ("state", "severity", "exit_code"),
    [("registered", "pass", 0), ("dropped", "warn", 0), ("unknown", "warn", 0), ("moved", "error", 1)],
)
def test_status_and_the_check_show_what_the_catalog_said(shop, state, severity, exit_code):
    shop.has_run("a.json")
    detail = "" if state == "registered" else f"It is {state}."
    recorded(shop, was(state, detail))
    [table], status_code, problems = status()
    assert (table["sink"], table["name"], table["state"], status_code) == (
        "main",
        "main.sales.orders",
        state,
        exit_code,
    )
    assert (f"shop/orders: It is {state}. (The catalog was asked at 2026-01-31 12:00.)" in problems) is bool(
        detail
    )
    assert check(shop).status == severity
    assert detail in check(shop).summary


def test_the_worst_table_decides(shop):
    shop.has_run("a.json")
    recorded(
        shop, was("registered"), was("moved", "It leads elsewhere.", name="main.sales.orders__quarantine")
    )
    assert check(shop).status == "error"
    assert dict(check(shop).numbers) == {"registered": 1, "not_in_order": 1}


def test_a_table_that_no_run_has_registered_is_a_warning_with_the_command(shop):
    shop.has_run("a.json")
    recorded(shop)
    assert check(shop).status == "pass"  # there is nothing to register
    has_a_table(shop)
    assert check(shop).status == "warn"
    assert (
        "main.sales.orders is not registered yet. Fix: tidemill register shop/orders" in check(shop).summary
    )
    recorded(shop, was("registered", name="main.other.orders"))  # under its former name
    assert check(shop).status == "warn"


def test_a_record_that_cannot_be_read_is_asked_for_again(shop):
    shop.has_run("a.json")
    recorded(shop, was("registered"))
    has_a_table(shop)
    StreamRecords(shop.target.lake, ORDERS).control.replace("catalog.json", b"{")
    assert status()[0] == []
    assert check(shop).status == "warn"


def test_a_plan_of_register_shows_what_is_recorded(shop):
    recorded(shop, was("registered"))
    has_a_table(shop)
    [orders] = [stream for stream in shop.target.streams() if stream.name == ORDERS]
    plan = OPERATIONS["register"].apply(orders, shop.target, None, dry_run=True)
    assert (plan.outcome, plan.changes, {str(name) for name in plan.names.values()}) == (
        "planned",
        True,
        {"main.sales.orders"},
    )
    assert plan.summary == "planned main.sales.orders registered"


def test_dagster_shows_the_name_and_the_location(shop):
    [orders] = [stream for stream in shop.target.streams() if stream.name == ORDERS]
    metadata = definition_metadata(orders, shop.target)
    assert metadata["dagster/table_name"] == "main.sales.orders"
    assert metadata["dagster/uri"] == (shop.root / "lake/tables/shop/orders").as_uri()
    tables = {"main": was("registered")}
    metadata = result_metadata(
        StreamResult(stream=ORDERS, outcome="updated", catalog=tables), NOW, shop.target.lake
    )
    assert metadata["dagster/table_name"] == "main.sales.orders"
    assert metadata["tidemill/catalog"].value["main"]["location"] == "/lake/orders"
    without = result_metadata(StreamResult(stream=ORDERS, outcome="updated"), NOW, shop.target.lake)
    assert "tidemill/catalog" not in without


def test_a_target_with_a_catalog_has_one_more_check(shop):
    [pipeline] = shop.target.pipelines().pipelines.values()
    with_it, without = (
        {spec.name for spec in streaming_assets(pipeline, target=target).check_specs}
        for target in (shop.target, None)
    )
    assert with_it - without == {"in_catalog"}


def test_the_settings_show_the_catalog(shop):
    shown = {setting.name: (setting.value, setting.origin) for setting in shop.target.settings()}
    assert shown["catalog"] == ("main", "tidemill.toml [targets.dev]")
    assert shown["schema"] == ("sales", "tidemill.toml [targets.dev]")


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ('schema = "ads"', "schema"),
        ('catalog = "a.b"', "catalog"),
        ('catalog = "main"\nschema = "a`b"', "schema"),
    ],
)
def test_wrong_names_are_faults_of_the_file(tmp_path, monkeypatch, lines, fault):
    shop = Shop.make(tmp_path, monkeypatch)
    config = tmp_path / "tidemill.toml"
    config.write_text(f"{config.read_text()}{lines}\n")
    with raises("config-invalid", f"targets.dev.{fault}"):
        assert shop.target

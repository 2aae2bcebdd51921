"""`tidemill plan` and `tidemill accept --change`: output and exit statuses, with queries that need no JVM."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest
from typer.testing import CliRunner

from tests.orchestration.shop import ORDERS, Shop
from tidemill.cli import app
from tidemill.errors import ConfigurationError, TerminalError, TransientError
from tidemill.records.manifest import StatefulOperator
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.waiting import failure_position

BY_CARRIER = StatefulOperator(kind="aggregate", properties={"group keys": "carrier"})
BY_ORIGIN = StatefulOperator(kind="aggregate", properties={"group keys": "origin"})


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Return a shop whose stream `orders` has committed a batch with an aggregate by carrier."""
    shop = Shop.make(tmp_path, monkeypatch)
    shop.has_run("a.json")
    records = StreamRecords(shop.target.lake, ORDERS)
    records.write_manifest(records.manifest().with_active(operators=(BY_CARRIER,), fingerprint="old"))
    return shop


@pytest.fixture
def now(monkeypatch):
    """Return a function that decides what the code is now: its operators, or what building it raises."""

    def decide(
        *operators: StatefulOperator,
        fingerprint: str = "new",
        error: Exception | None = None,
        warnings: tuple[str, ...] = (),
        schemas: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        def build(*_: object) -> SimpleNamespace:
            if error is not None:
                raise error
            return SimpleNamespace(
                operators=operators, fingerprint=fingerprint, output=None, warnings=warnings, schemas=schemas
            )

        for module in ("code_changes", "accept"):
            monkeypatch.setattr(f"tidemill.operations.edits.{module}.build_now", build)

    return decide


def tidemill(*arguments: str):
    return CliRunner().invoke(app, arguments)


def position(shop) -> str:
    """Return what the failure of the next run depends on."""
    (orders,) = (stream for stream in shop.target.streams() if stream.name == ORDERS)
    snapshot = StreamRecords(shop.target.lake, ORDERS).snapshot()
    return failure_position(orders, snapshot.manifest, snapshot)


def test_a_plan_names_operator_values_and_what_to_run(shop, now):
    now(BY_ORIGIN)
    result = tidemill("plan")
    assert result.exit_code == 1
    orders, unique = (line.split() for line in result.stdout.splitlines()[1:])
    assert orders == ["shop/orders", "mixes", "state", "aggregate", "group", "keys", "carrier", "origin"]
    assert unique == ["shop/unique", "safe"]
    assert "starting Spark" in result.stderr
    assert "tidemill accept shop/orders --change" in result.stderr

    document = json.loads(tidemill("plan", "--json").stdout)
    orders, unique = document["streams"]
    assert orders["verdict"] == "mixes_state"
    assert orders["differences"] == [
        {"operator": "aggregate", "property": "group keys", "before": "carrier", "now": "origin"}
    ]
    assert unique["what"] == "It has no state and has never committed a batch, so any code can start."
    assert Path(shop.target.lake.uri).joinpath("control/shop/unique").exists() is False


@pytest.mark.parametrize(("fingerprint", "verdict"), [("old", "nothing"), ("new", "safe")])
@pytest.mark.usefixtures("shop")
def test_a_plan_without_a_problem_exits_0(now, fingerprint, verdict):
    now(BY_CARRIER, fingerprint=fingerprint)
    result = tidemill("plan", "shop/orders", "--json")
    assert result.exit_code == 0
    [stream] = json.loads(result.stdout)["streams"]
    assert (stream["verdict"], stream["differences"], stream["fix"]) == (verdict, [], None)


@pytest.mark.parametrize(
    ("error", "what", "verdict", "status"),
    [
        (TerminalError("its function is wrong.", fix="correct it."), "its function is wrong.", "refused", 1),
        (ValueError("no such column"), "no such column", "refused", 1),
        (
            TransientError("the broker does not answer.", fix="run it again."),
            "the broker does not answer.",
            "unknown",
            2,
        ),
    ],
)
@pytest.mark.usefixtures("shop")
def test_what_a_run_would_refuse_is_in_the_plan(now, error, what, verdict, status):
    now(error=error)
    result = tidemill("plan", "shop/orders", "--json")
    assert result.exit_code == status
    [stream] = json.loads(result.stdout)["streams"]
    assert stream["verdict"] == verdict
    assert what in stream["what"]


@pytest.mark.usefixtures("shop")
def test_warnings_and_inferred_columns_of_a_stream_that_has_never_run_are_shown(now):
    now(warnings=("its state grows forever.",), schemas={"rows": "`n` INT"})
    result = tidemill("plan", "shop/unique")
    assert result.exit_code == 0
    assert "shop/unique: its state grows forever." in result.stderr
    assert "shop/unique: the columns of its source 'rows', as inferred: `n` INT" in result.stderr
    [unique] = json.loads(tidemill("plan", "shop/unique", "--json").stdout)["streams"]
    assert (unique["warnings"], unique["schemas"]) == (["its state grows forever."], {"rows": "`n` INT"})


@pytest.mark.usefixtures("shop")
def test_a_stream_whose_upstream_cannot_be_built_is_no_verdict(now):
    now(error=TerminalError("its function is wrong.", fix="correct it."))
    result = tidemill("plan", "shop/unique", "--json")
    assert result.exit_code == 1
    [unique] = json.loads(result.stdout)["streams"]
    assert unique["verdict"] == "unknown"
    assert "cannot be checked before shop/orders has run" in unique["what"]

    now(error=TransientError("the broker does not answer."))
    assert tidemill("plan", "shop/unique", "--json").exit_code == 2


@pytest.mark.usefixtures("shop")
def test_a_spark_that_cannot_start_is_no_verdict(now):
    now(error=ConfigurationError("there is no Java."))
    result = tidemill("plan", "shop/orders")
    assert isinstance(result.exception, ConfigurationError)


@pytest.mark.usefixtures("shop")
def test_a_binding_that_a_run_refuses_needs_no_spark(now, tmp_path):
    now(error=AssertionError("Spark was asked"))
    (tmp_path / "elsewhere" / "orders").mkdir(parents=True)
    result = tidemill("plan", "shop/orders", "--json", "--landing", str(tmp_path / "elsewhere"))
    assert result.exit_code == 1
    [stream] = json.loads(result.stdout)["streams"]
    assert stream["verdict"] == "refused"
    assert "tidemill rebind shop/orders events" in stream["fix"]


def test_a_change_is_accepted_once_and_recorded(shop, now):
    now(BY_ORIGIN)
    plan = tidemill("accept", "shop/orders", "--change", "--dry-run")
    assert plan.exit_code == 0, plan.output
    assert "aggregate: group keys 'carrier' -> 'origin'" in plan.stdout
    assert tidemill("accept", "shop/orders", "--change").exit_code == 2
    assert tidemill("plan", "shop/orders").exit_code == 1
    before = position(shop)

    done = tidemill("accept", "shop/orders", "--change", "--yes", "--json")
    assert json.loads(done.stdout)["changed"]
    assert tidemill("plan", "shop/orders").exit_code == 0
    active = StreamRecords(shop.target.lake, ORDERS).manifest().active
    assert active.operators == (BY_ORIGIN,)
    assert position(shop) != before, "a sensor starts the stream again"
    again = tidemill("accept", "shop/orders", "--change", "--yes")
    assert "does not refuse a change of its code" in str(again.exception)


@pytest.mark.usefixtures("shop")
def test_a_change_of_a_stream_that_has_never_run_is_refused_without_spark(now):
    now(error=AssertionError("Spark was asked"))
    result = tidemill("accept", "shop/unique", "--change", "--yes")
    assert "it has never run" in str(result.exception)

"""The commands that edit a stream: a plan first, nothing without a yes, and never beside a run."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.run.fault_streams import shop
from tests.run.test_two_runs import CONFIG
from tests.support.raising import raises
from tidemill import DeltaAppend, Pipeline
from tidemill.cli import app
from tidemill.errors import LeaseHeldError
from tidemill.operations.edits.accept import accept_new_source, accept_version
from tidemill.operations.edits.rebind import rebind
from tidemill.records.manifest import first_manifest
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.lake import Lake
from tidemill.storage.memory_store import MemoryStore
from tidemill.target.target import FolderBinding
from tidemill.testing import Scratch
from tidemill.text.names import StreamName

ORDER = {"order_id": "o1", "customer": "c1", "amount": 5, "at": "2026-01-01T00:00:00Z"}


@pytest.fixture
def orders():
    return shop()["orders"]


@pytest.fixture
def elsewhere(scratch, orders, tmp_path, monkeypatch):
    """A stream that has run, and a configuration that binds its feed to another landing folder."""
    scratch.run(orders, [[ORDER]])
    landing = tmp_path / "elsewhere"
    shutil.copytree(scratch.landing, landing)
    config = tmp_path / "tidemill.toml"
    config.write_text(CONFIG.format(lake=scratch.lake.uri, landing=landing))
    monkeypatch.setenv("TIDEMILL_CONFIG", str(config))
    return landing


def tidemill(*arguments: str):
    return CliRunner().invoke(app, arguments, catch_exceptions=True)


def recorded(scratch, orders):
    return StreamRecords(scratch.lake, orders.name).manifest().active.sources["events"].binding["path"]


def test_a_plan_changes_nothing_and_a_yes_does(scratch, orders, elsewhere):
    before = {path: path.read_bytes() for path in Path(scratch.lake.uri).rglob("*") if path.is_file()}
    plan = tidemill("rebind", "shop/orders", "events", "--dry-run")
    assert plan.exit_code == 0, plan.output
    assert "Read already, by their path" in plan.output
    question = tidemill("rebind", "shop/orders", "events")
    assert question.exit_code == 2
    assert "--yes" in question.output
    assert {path: path.read_bytes() for path in Path(scratch.lake.uri).rglob("*") if path.is_file()} == before

    done = tidemill("rebind", "shop/orders", "events", "--yes", "--json")
    document = json.loads(done.stdout)
    assert document["changed"]
    assert document["stream"] == "shop/orders"
    [log] = [path for path in Path(document["copies"]).rglob("0") if path.is_file()]
    assert str(scratch.landing) in log.read_text()
    assert recorded(scratch, orders) == str(elsewhere / "orders")


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["accept", "shop/orders"], "--new-source NAME, --version UPSTREAM@VERSION"),
        (["accept", "shop/orders", "--version", "shop/names"], "such as ads/clicks@7"),
        (["rename-source", "shop", "a", "b"], "selects 17 streams"),
    ],
)
def test_a_command_that_names_nothing_is_refused(arguments, message):
    result = tidemill(*arguments)
    assert result.exit_code != 0
    assert message in str(result.exception)


def test_nothing_is_changed_beside_a_run(scratch, orders, tmp_path):
    scratch.run(orders, [[ORDER]])
    scratch.bindings["orders"] = FolderBinding(tmp_path)
    lease = StreamRecords(scratch.lake, orders.name).take_lease("a run")
    try:
        rebind(orders, scratch.target, "events", dry_run=True)
        with pytest.raises(LeaseHeldError):
            rebind(orders, scratch.target, "events")
    finally:
        lease.release()
    rebind(orders, scratch.target, "events")


def test_a_stream_that_has_never_run_has_nothing_to_change(scratch, orders):
    with raises("stream-never-run"):
        accept_new_source(orders, scratch.target, "events")


def test_a_version_of_a_table_that_the_stream_does_not_read_is_not_accepted(tmp_path, orders):
    lake = Lake(MemoryStore())
    target = Scratch(lake=lake, landing=tmp_path, engine=None).target
    copied = Pipeline("shop").stream(source=orders, sink=DeltaAppend(), name="copied")(lambda rows: rows)
    StreamRecords(lake, copied.name).write_manifest(first_manifest({}))
    with raises("upstream-not-read", "shop/others", "name one of shop/orders"):
        accept_version(copied, target, StreamName("shop", "others"), 3)
    with raises("nothing-to-change", "version 3 of shop/orders"):
        accept_version(copied, target, orders.name, 3)

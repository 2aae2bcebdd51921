"""What is declared once: the command, the job and the resume command of each operation agree."""

import shlex
from datetime import UTC, datetime, timedelta
from inspect import signature
from pathlib import Path

import pytest
import typer
from dagster import validate_run_config
from typer.testing import CliRunner

from tests.orchestration.shop import Shop
from tests.support.raising import raises
from tidemill import cli
from tidemill.cli.change import operation
from tidemill.operations.core.change import Change, report_changes
from tidemill.operations.core.spec import Work
from tidemill.operations.registry import OPERATIONS
from tidemill.orchestration.jobs.operation_job import config_schema, operation_job
from tidemill.text.names import StreamName

ORDERS = StreamName("shop", "orders")
# Arguments of each operation, as its function takes them.
ASKED = {
    "backfill": {
        "begin": "2026-01-02",
        "end": "it's",
        "lookback": timedelta(hours=36),
        "allow_missing": True,
    },
    "rebuild": {"keep_old": True},
    "rewind": {"to_time": datetime(2026, 1, 31, 12, tzinfo=UTC)},
    "reset": {"start": '{"rows": 17}', "table": "new", "allow_skipped": True},
    "replay": {},
    "accept": {"new_source": "events"},
    "rebind": {"source": "events", "from_beginning": True},
    "rename-source": {"old": "events", "new": "orders"},
    "adopt": {"checkpoint": "/data/a b", "table": "s3://data/t"},
    "prune": {"older_than": timedelta(days=3)},
    "maintain": {"keep": timedelta(hours=12)},
    "register": {},
}


@pytest.fixture
def called(monkeypatch):
    """Call a command line of an operation, and return the operation with its arguments."""
    calls = []
    monkeypatch.setattr(operation, "run_operation", lambda spec, _, given: calls.append((spec, given)))

    def call(line):
        result = CliRunner().invoke(cli.app, shlex.split(line)[1:])
        assert result.exit_code == 0, result.output
        spec, given = calls.pop()
        given.pop("stream", None)
        return spec, given

    return call


def test_every_operation_is_asked_for_something():
    assert ASKED.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("kind", OPERATIONS)
def test_the_function_of_an_operation_takes_its_arguments_and_a_part_of_the_work(kind):
    spec = OPERATIONS[kind]
    function = signature(spec.apply)
    needed = {name for name in function.parameters if name in {*vars(Work), *Work.__dataclass_fields__}}
    values = {one.name: ASKED[kind].get(one.name, one.default) for one in spec.arguments}
    publish = {"publish": True} if spec.replays else {}
    bound = function.bind(None, **dict.fromkeys(needed), **values, **publish, dry_run=True)
    assert "target" in bound.arguments


@pytest.mark.parametrize("kind", OPERATIONS)
def test_the_resume_command_asks_for_the_same(kind, called):
    spec = OPERATIONS[kind]
    defaults = {one.name: one.value(one.default, one.name) for one in spec.arguments}
    for asked in (ASKED[kind], *([{"to_batch": 0}] if kind == "rewind" else [])):
        again, given = called(spec.resume_command(ORDERS, spec.recorded(**asked)))
        assert again is spec
        assert spec.values(given, by_flag=True) == defaults | asked


@pytest.mark.parametrize("kind", OPERATIONS)
def test_the_config_of_the_job_has_the_arguments_and_defaults_of_the_command(
    kind, called, tmp_path, monkeypatch
):
    spec, shop = OPERATIONS[kind], Shop.make(tmp_path, monkeypatch)
    [pipeline] = shop.target.pipelines().pipelines.values()
    written = {name: str(value) if isinstance(value, Path) else value for name, value in ASKED[kind].items()}
    required = {one.name: written[one.name] for one in spec.arguments if one.required}
    streams = {"stream": "shop/orders"} if spec.one_stream else {"selection": ["shop/orders"]}
    config = {"ops": {f"shop__run_{spec.job_name}": {"config": streams | required}}}
    resolved = validate_run_config(operation_job(spec, pipeline, {}), config)
    filled = resolved["ops"][f"shop__run_{spec.job_name}"]["config"]

    _, given = called(spec.resume_command(ORDERS, required))
    assert {one.name: filled[one.name] for one in spec.arguments} == {
        name: str(value) if isinstance(value, Path) else value for name, value in given.items()
    }
    assert filled["dry_run"] is False


@pytest.mark.parametrize(
    ("by_flag", "message"),
    [(True, "Name one of --to-batch N, --to-time TIME."), (False, "Name one of to_batch, to_time.")],
)
def test_arguments_that_exclude_each_other_are_named_as_they_are_written(by_flag, message):
    for given in ({}, {"to_batch": 0, "to_time": "2026-01-31"}):
        with raises("arguments-conflict") as error:
            OPERATIONS["rewind"].values(given, by_flag=by_flag)
        assert str(error.value) == message


def test_a_number_below_the_least_is_refused():
    with raises("argument-invalid", "to_batch is -1"):
        OPERATIONS["rewind"].values({"to_batch": -1}, by_flag=False)


def test_an_operation_on_one_stream_refuses_several(tmp_path, monkeypatch):
    shop = Shop.make(tmp_path, monkeypatch)
    where = (shop.target, None, shop.target.streams())
    with raises("selection-ambiguous", "'shop'"):
        OPERATIONS["reset"].work(*where, ["shop"], run_id="r")
    with raises("selection-missing"):
        OPERATIONS["rebuild"].work(*where, [], run_id="r")
    work = OPERATIONS["rebuild"].work(*where, ["shop/orders"], downstream=True, run_id="r")
    assert [stream.name.stream for stream in work.streams] == ["orders", "unique"]
    assert (work.selected, work.readers) == ({ORDERS}, [])
    alone = OPERATIONS["rebuild"].work(*where, ["shop/orders"], run_id="r")
    assert [stream.name.stream for stream in alone.readers] == ["unique"]


def test_a_plan_names_what_has_been_computed_already():
    change = Change(
        stream=ORDERS, what="It changes.", effects=("Rows move.",), outcome="It would have 3 rows."
    )
    report = report_changes([change], changed=False)
    assert report.lines == ["shop/orders: It changes.", "  - Rows move.", "  - It would have 3 rows."]
    assert report_changes([change], changed=True).lines == ["Done."]


def test_every_command_that_changes_a_stream_has_a_job():
    jobs = {spec.job_name for spec in OPERATIONS.values()}
    assert len(jobs) == len(OPERATIONS)
    assert all({"dry_run"} < config_schema(spec).keys() for spec in OPERATIONS.values())
    assert isinstance(typer.main.get_command(cli.app).get_command(None, "rewind"), typer.core.TyperCommand)

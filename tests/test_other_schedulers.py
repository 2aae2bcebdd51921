"""The Airflow code of the page, run against a command that prints what `tidemill` prints."""

import configparser
import json
import re
import stat
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Self

import pytest

from tests.test_docs import PAGES, names_of
from tidemill.cli.run.results import as_document
from tidemill.errors import TerminalError, TransientError
from tidemill.run.execute.results import StreamResult
from tidemill.text.names import StreamName

PAGE = "docs/other-schedulers.md"
CLICKS = StreamName("ads", "clicks")


class NoRetryError(Exception):
    """Stands for AirflowFailException."""


class Operator:
    """Stands for an operator of Airflow, which `>>` puts before another one."""

    def __init__(self, **fields) -> None:
        self.fields = fields
        self.after: list[Operator] = []

    def __rshift__(self, other: "Operator") -> "Operator":
        self.after.append(other)
        return other


class Dag:
    def __init__(self, name: str, **fields) -> None:
        self.name, self.fields = name, fields

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def airflow(monkeypatch):
    """The modules of Airflow that the page imports, without Airflow."""
    modules = {
        "airflow": {"DAG": Dag},
        "airflow.exceptions": {"AirflowFailException": NoRetryError},
        "airflow.operators": {},
        "airflow.operators.python": {"PythonOperator": Operator, "ShortCircuitOperator": Operator},
    }
    for name, names in modules.items():
        module = ModuleType(name)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def run_streams(tmp_path, airflow):  # noqa: ARG001 - pytest has no mark that makes a fixture use another one
    """`run_streams` of the page with a command that prints these results and exits with this status."""
    page = names_of(PAGE)
    real = page["subprocess"].Popen

    def started(command, **fields):
        assert command[1:] == ["run", "ads", "--wait=30m", "--json"]
        assert fields["env"]["TIDEMILL_TARGET"] == "prod"
        return real([str(tmp_path / "tidemill")], **fields | {"cwd": tmp_path})

    page["subprocess"] = SimpleNamespace(Popen=started, PIPE=page["subprocess"].PIPE)

    def run(*results: StreamResult, status: int):
        printed = json.dumps({"schema_version": 1, "streams": [as_document(result) for result in results]})
        script = tmp_path / "tidemill"
        script.write_text(f"#!/bin/sh\necho '{printed if results else ''}'\nexit {status}\n")
        script.chmod(stat.S_IRWXU)
        return page["run_streams"]("ads")

    return run


def failed(error) -> StreamResult:
    return StreamResult(stream=CLICKS, outcome="failed", error=error)


def test_the_results_are_returned_by_stream(run_streams):
    results = run_streams(StreamResult(stream=CLICKS, outcome="busy", reason="held"), status=0)
    assert results["ads/clicks"]["outcome"] == "busy"
    task = SimpleNamespace(xcom_pull=lambda task_ids: results if task_ids == "ads" else None)
    assert names_of(PAGE)["has_new_rows"](task, "ads/clicks", "ads") is False


def test_only_a_transient_failure_is_retried(run_streams):
    with pytest.raises(RuntimeError, match=r"The broker is down\. Run it again"):
        run_streams(failed(TransientError("The broker is down.")), status=1)
    with pytest.raises(NoRetryError, match=r"A column is missing\. Add it\."):
        run_streams(failed(TerminalError("A column is missing.", fix="Add it.")), status=1)


@pytest.mark.parametrize("status", [2, 130])
def test_a_command_that_could_not_work_is_not_retried(run_streams, status):
    with pytest.raises(NoRetryError, match=f"exited with {status}"):
        run_streams(status=status)


@pytest.mark.usefixtures("airflow")
def test_the_dag_skips_what_follows_a_stream_without_new_rows():
    dag = names_of(PAGE)["create_dag"]()
    assert dag.fields["max_active_runs"] == 1


def test_a_task_per_stream_follows_the_streams_that_it_reads():
    streams = [
        {"stream": "ads/clicks", "sources": [{"upstream": None}]},
        {"stream": "ads/unique", "sources": [{"upstream": "ads/clicks"}, {"upstream": "other/one"}]},
    ]
    tasks = names_of(PAGE)["create_tasks"](streams, lambda name: Operator(name=name))
    assert tasks["ads/clicks"].after == [tasks["ads/unique"]]
    assert tasks["ads/unique"].after == []


def test_the_units_of_systemd_can_be_parsed():
    blocks = re.findall(r"```ini\n(.*?)```", Path(PAGES[PAGE]).read_text(), re.DOTALL)
    service, timer = (configparser.ConfigParser(interpolation=None) for _ in blocks)
    service.read_string(blocks[0])
    timer.read_string(blocks[1])
    assert service["Service"]["ExecStart"].endswith("tidemill run %i")
    assert timer["Install"]["WantedBy"] == "timers.target"

"""What a replay asks before it computes, and before it publishes."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import typer

from tests.orchestration.shop import Shop
from tidemill.cli.change import operation
from tidemill.cli.change.operation import ReplayFlags, run_operation
from tidemill.operations.core.change import Change
from tidemill.operations.replay.rebuild import REBUILD


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """The calls of a change that is not carried out: `plan`, `compute`, `publish`."""
    Shop.make(tmp_path, monkeypatch)
    monkeypatch.setattr(operation, "spark_of", lambda _: nullcontext())
    return []


def replayed(calls, **flags):
    def change(stream, *, dry_run, publish=True, **_):
        calls.append("plan" if dry_run else "publish" if publish else "compute")
        return Change(
            stream=stream.name, what="It changes.", outcome="" if dry_run else "It would have 3 rows."
        )

    run_operation(replace(REBUILD, apply=change), ReplayFlags(selection=["shop/orders"], **flags), {})


def answer(monkeypatch, *answers):
    questions = []

    def confirm(question, **_):
        questions.append(question)
        return answers[len(questions) - 1]

    monkeypatch.setattr(typer, "confirm", confirm)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    return questions


def test_the_difference_is_shown_before_the_second_question(calls, monkeypatch, capsys):
    questions = answer(monkeypatch, True, True)
    replayed(calls)
    assert questions == ["Compute it?", "Publish it?"]
    assert calls == ["plan", "compute", "publish"]
    assert "shop/orders: It would have 3 rows." in capsys.readouterr().out


def test_nothing_is_published_after_a_no(calls, monkeypatch, capsys):
    answer(monkeypatch, True, False)
    with pytest.raises(typer.Exit) as ended:
        replayed(calls)
    assert (ended.value.exit_code, calls) == (1, ["plan", "compute"])
    assert "The same command publishes it, without computing it again." in capsys.readouterr().err


def test_nothing_is_computed_after_a_no(calls, monkeypatch):
    answer(monkeypatch, False)
    with pytest.raises(typer.Exit):
        replayed(calls)
    assert calls == ["plan"]


def test_yes_asks_nothing(calls, monkeypatch):
    questions = answer(monkeypatch)
    replayed(calls, yes=True)
    assert (questions, calls) == ([], ["plan", "publish"])

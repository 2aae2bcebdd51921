"""The flags that commands share: in every signature, in one object, and back on a command line."""

import shlex
from pathlib import Path
from typing import Annotated

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.support.raising import raises
from tidemill.cli.shared.target_flags import StreamFlags, TargetFlags, target_flags

CALLS: list[tuple[object, ...]] = []
app = typer.Typer()


@app.command()
@target_flags
def streams(*, often: Annotated[int, typer.Option()] = 1, flags: StreamFlags) -> None:
    CALLS.append((often, flags))


@app.command()
@target_flags
def checkpoint(which: Annotated[str, typer.Argument()], flags: TargetFlags) -> None:
    CALLS.append((which, flags))


def call(*arguments: str) -> tuple[object, ...]:
    CALLS.clear()
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    (arguments,) = CALLS
    return arguments


def test_a_command_gets_its_own_arguments_and_one_object():
    flags = StreamFlags(
        selection=["a", "b/c"],
        exclude=["d", "e"],
        target="t",
        lake="/l",
        landing="in",
        kafka="k:1",
        as_json=True,
    )
    line = "streams a b/c --exclude d --exclude e -t t --lake /l --landing in --kafka k:1 --json --often 3"
    assert call(*line.split()) == (3, flags)


def test_without_flags_all_is_the_default():
    assert call("streams") == (1, StreamFlags())
    assert call("checkpoint", "ads") == ("ads", TargetFlags())


@pytest.mark.parametrize("command", ["streams", "checkpoint"])
def test_help_names_every_flag(command):
    text = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    for flag in ("--target", "-t", "--lake", "--landing", "--kafka", "--json"):
        assert f"{flag} " in text
    assert ("--exclude" in text) == (command == "streams")


ANY = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
PATH = ANY.map("/data/{}".format).map(Path)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(target=st.none() | ANY, lake=st.none() | PATH, landing=st.none() | PATH, kafka=st.none() | ANY)
def test_flags_in_a_suggested_command_survive_a_shell(target, lake, landing, kafka):
    flags = TargetFlags(target=target, lake=lake, landing=landing, kafka=kafka)
    words = shlex.split(f"tidemill run{flags}")[2:]
    values = {"--target": target, "--lake": lake, "--landing": landing, "--kafka": kafka}
    assert dict(zip(words[::2], words[1::2], strict=True)) == {
        flag: str(value) for flag, value in values.items() if value is not None
    }


@pytest.mark.parametrize(("flag", "address"), [("--lake", "gs://bucket/k"), ("--landing", "gs://bucket/k")])
def test_an_object_store_is_refused_before_anything_is_read(flag, address):
    (_, flags) = call("streams", flag, address)

    with raises("store-not-supported", address):
        flags.resolve()

"""Use what the gallery shows: declarations that are refused, and the flags of commands."""

from typer.main import get_command

from tests.conformance.gallery import ERRORS
from tests.support.raising import raises
from tidemill import cli
from tidemill.cli.run.run import _follow


def assert_refused(code, declare, *arguments):
    """Expect the error that the gallery shows below a declaration."""
    with raises(code) as raised:
        declare(*arguments)
    assert str(raised.value) == ERRORS[declare.__name__]


def flags_of(command):
    """Return the values of the flags of a command line, as the command parses them."""
    _, name, *arguments = command.split()
    return get_command(cli.app).get_command(None, name).make_context(name, arguments).params


def run_arguments(command, stream):
    """Return the arguments of the `PipelineRun` that `tidemill run` starts, of a command line for this stream."""
    flags = flags_of(command)
    assert flags["selection"] == (str(stream.name),)
    once = flags["once"]
    return {
        "once": once,
        "follow": _follow(flags["follow"], flags["following_for"], flags["mode"], once=once),
    }

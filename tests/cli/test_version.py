"""`tidemill --version`."""

from importlib.metadata import version

from typer.testing import CliRunner

from tidemill.cli import app


def test_the_version_of_the_package():
    result = CliRunner().invoke(app, ["--version"])

    assert (result.exit_code, result.stdout) == (0, f"tidemill {version('tidemill')}\n")

"""The `tidemill` command: one module per group, imported when the group is called."""

import importlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

_SUMMARY = "Run, watch and inspect Structured Streaming pipelines that need no always-on cluster."
# Group or command -> its module, and one line for the help. The module of a command is imported when the
# command is called, so that a `tidemill run` without work to do takes less than a second. The commands of
# `change.operation` are made from the declarations of the operations, which have the line for the help.
_COMMANDS = {
    "init": ("project.init", "Write a project with a pipeline, a test and a code location for Dagster."),
    "new": ("project.new", "Add a pipeline or a stream to a project."),
    "demo": ("machine.demo", "Run the ads pipeline twice on generated events."),
    "run": ("run.run", "Run the streams that have work to do."),
    "plan": ("run.plan", "Show what the current code would do to each stream, before it runs."),
    "status": ("run.status", "Show new data, running streams and problems, without starting Spark."),
    "check": ("run.check", "Evaluate the checks of streams, without starting Spark."),
    "list": ("run.listing", "List streams, what they read and what they write."),
    "checkpoint": ("checkpoint.checkpoint", "Inspect, verify and compare checkpoints."),
    "backfill": ("change.backfill", ""),
    "rebuild": ("change.operation", ""),
    "reset": ("change.operation", ""),
    "operations": (
        "change.operations",
        "List backfills, rebuilds, rewinds and other operations, with what they changed.",
    ),
    "rewind": ("change.operation", ""),
    "accept": ("change.operation", ""),
    "rebind": ("change.operation", ""),
    "rename-source": ("change.operation", ""),
    "adopt": ("change.operation", ""),
    "quarantine": ("change.quarantine", "Show the records and rows that rules refused, and replay them."),
    "maintain": ("change.operation", ""),
    "prune": ("change.operation", ""),
    "register": ("change.operation", ""),
    "debug": ("machine.debug", "Show the resolved settings and test every connection."),
    "engine": ("machine.engine", "Start, show and stop the warm server of a target."),
    "jars": ("machine.jars", "Show or fetch the jars that Spark needs."),
}


class _LazyGroup(TyperGroup):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import the module of a command and return the command."""
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, summary = _COMMANDS[cmd_name]
        imported = importlib.import_module(f"tidemill.cli.{module}")
        if module == "change.operation":
            from tidemill.operations.registry import OPERATIONS

            command = typer.main.get_command(imported.app_of(OPERATIONS[cmd_name]))
        else:
            command = typer.main.get_command(imported.app)
        command.name = cmd_name
        command.short_help = summary or command.short_help
        return command


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=_SUMMARY,
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"tidemill {version('tidemill')}")
        raise typer.Exit


@app.callback()
def _tidemill(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Do nothing before a command: the callback keeps the group a group."""


def main() -> None:
    """Run the command; print an error of Tidemill in one line on standard error, and set the exit status."""
    from tidemill.cli.shared.output import EXIT_INTERRUPTED, EXIT_NOT_DONE, EXIT_PROBLEM, print_problem
    from tidemill.errors import ConfigurationError, DefinitionError, TidemillError

    try:
        status = app(standalone_mode=False)
    except TidemillError as error:
        print_problem(f"tidemill: {error}")
        sys.exit(EXIT_NOT_DONE if isinstance(error, ConfigurationError | DefinitionError) else EXIT_PROBLEM)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        if hasattr(error, "exit_code") and hasattr(error, "show"):  # a usage error of the command line
            error.show()
            sys.exit(error.exit_code)
        raise
    sys.exit(status or 0)

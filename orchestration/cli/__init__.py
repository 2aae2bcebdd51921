"""The `tidemill` command: one module a group, each loaded when it is called."""

import importlib
import sys
from typing import Any

import typer
from typer.core import TyperGroup

# Group or command -> the module that has it, and one line for the help. A module is imported when its
# command is called: an idle `tidemill run` takes under a second.
_COMMANDS = {
    "demo": ("demo", "Generate ad events and run the ads pipeline on them, twice."),
    "run": ("run", "Run streams that have something to do."),
    "status": ("status", "What waits, what runs, what is wrong: without starting Spark."),
    "list": ("listing", "The streams, what they read and what they write."),
    "checkpoint": ("checkpoint", "Look into checkpoints, judge and compare them."),
    "accept": ("accept", "Accept a new source, or a commit upstream that removed rows."),
    "rebind": ("rebind", "Continue a source in another folder, topic or cluster."),
    "rename-source": ("rename_source", "Continue a source under another name."),
    "debug": ("debug", "The resolved settings and whether everything can be reached."),
    "jars": ("jars", "The jars that Spark needs, fetched once."),
}


class _LazyGroup(TyperGroup):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands, in the order of the help."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, its module imported now."""
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, summary = _COMMANDS[cmd_name]
        command = typer.main.get_command(importlib.import_module(f"orchestration.cli.{module}").app)
        command.name = cmd_name
        command.short_help = summary
        return command


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Structured Streaming without always-on streams.",
)


@app.callback()
def _tidemill() -> None:
    """Structured Streaming without always-on streams."""


def main() -> None:
    """The command's entry point: an error of ours is one line on stderr, and an exit status."""
    from orchestration.cli.options import COULD_NOT_LOOK, INTERRUPTED, WRONG
    from pipelines.streaming.errors import ConfigurationError, DefinitionError, TidemillError

    try:
        status = app(standalone_mode=False)
    except TidemillError as error:
        typer.secho(f"tidemill: {error}", err=True, fg=typer.colors.RED)
        sys.exit(COULD_NOT_LOOK if isinstance(error, ConfigurationError | DefinitionError) else WRONG)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        if hasattr(error, "exit_code") and hasattr(error, "show"):  # a usage error of the command line
            error.show()
            sys.exit(error.exit_code)
        raise
    sys.exit(status or 0)

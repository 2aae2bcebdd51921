"""`tidemill backfill`: a range of streams' tables is computed again, beside the live streams."""

from typing import Any

import typer
from typer.core import TyperCommand

from tidemill.cli.change.operation import app_of
from tidemill.operations.replay.backfill import BACKFILL


class _WithStatus(TyperCommand):
    """The command with a subcommand: a first argument that is not `status` is a selection of streams."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the subcommands."""
        del ctx
        return ["status"]

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return a subcommand, imported when it is called; None where there is none of that name."""
        if name not in self.list_commands(ctx):
            return None
        from tidemill.cli.change.coverage import app as status

        command = typer.main.get_command(status)
        command.name = name
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return the context of the subcommand, if it is called, or of the command itself."""
        command = self.get_command(None, args[0]) if args else None
        if command is None:
            return super().make_context(info_name, args, parent, **extra)
        return command.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Invoke the command that the context was made for."""
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)


app = app_of(
    BACKFILL,
    cls=_WithStatus,
    epilog="tidemill backfill status [SELECTION]...: show which ranges were computed by which code.",
)

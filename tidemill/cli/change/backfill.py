"""`tidemill backfill`: a range of streams' tables is computed again, beside the live streams."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from tidemill.cli.shared.changes import ReplayFlags, replay
from tidemill.cli.shared.target_flags import all_streams, selected, target_flags

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.operations import Change

app = typer.Typer(add_completion=False)


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


@app.command(
    cls=_WithStatus,
    epilog="tidemill backfill status [SELECTION]...: show which ranges were computed by which code.",
)
@target_flags
def backfill(
    *,
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="VALUE",
            help="The first value of the column that backfill_by names, such as 2026-01-31.",
        ),
    ],
    end: Annotated[
        str, typer.Option("--to", metavar="VALUE", help="The first value that is not in the range.")
    ],
    lookback: Annotated[
        str | None,
        typer.Option(
            "--lookback",
            metavar="DURATION",
            help="Read only what is this close to the range, by the times of files, messages and commits: "
            "12h, 2d, '1 day 12 hours'. The default is what the stream declares, or everything.",
        ),
    ] = None,
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing", help="Continue where sources no longer have everything that the range needs."
        ),
    ] = False,
    keep_staging: Annotated[
        bool, typer.Option("--keep-staging", help="Keep the computed tables in the staging folder.")
    ] = False,
    flags: ReplayFlags,
) -> None:
    """Compute a range of the selected tables again, with the code as it is now, and replace it in one commit each.

    What the streams have read is read again beside them; they may run meanwhile. A backfill that was killed is
    finished by the same command. tidemill operations lists what was replayed.

    Exit status: 0 fine, 1 it is not possible, 2 nothing was changed without --yes, 130 interrupted.
    """
    from tidemill import operations as lifecycle
    from tidemill.cli.run.run import new_run_id
    from tidemill.text.durations import flag_duration

    length = None if lookback is None else flag_duration(lookback, what="--lookback")
    resolved, streams = flags.select()
    replayed = {stream.name for stream in streams}
    one = partial(
        lifecycle.replay_range,
        begin=begin,
        end=end,
        run_id=new_run_id(),
        selected={stream.name for stream in selected(resolved, flags.selection or (), flags.exclude or ())},
        lookback=length,
        allow_missing=allow_missing,
        keep_staging=keep_staging,
        readers=[stream for stream in all_streams(resolved) if stream.name not in replayed],
    )

    def change(stream: "Stream", **arguments: Any) -> "Change":
        return one(stream, resolved, **arguments)

    replay(change, resolved, streams, flags)

"""`tidemill backfill`: a range of streams' tables is computed again, beside the live streams."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.changes import ReplayFlags, replay
from orchestration.cli.target_flags import all_streams, selected, target_flags

if TYPE_CHECKING:
    from pipelines.streaming.lifecycle import Change
    from pipelines.streaming.stream import Stream

app = typer.Typer(add_completion=False)


@app.command()
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
    from orchestration.cli.run import new_run_id
    from pipelines.streaming import lifecycle

    resolved, streams = flags.select()
    replayed = {stream.name for stream in streams}
    one = partial(
        lifecycle.replay_range,
        begin=begin,
        end=end,
        run_id=new_run_id(),
        selected={stream.name for stream in selected(resolved, flags.selection or (), flags.exclude or ())},
        allow_missing=allow_missing,
        keep_staging=keep_staging,
        readers=[stream for stream in all_streams(resolved) if stream.name not in replayed],
    )

    def change(stream: "Stream", **arguments: Any) -> "Change":
        return one(stream, resolved, **arguments)

    replay(change, resolved, streams, flags)

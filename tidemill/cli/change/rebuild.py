"""`tidemill rebuild`: streams are computed again from their sources, and their tables replaced."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.shared.changes import ReplayFlags, replay
from tidemill.cli.shared.target_flags import all_streams, target_flags

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.operations import Change

app = typer.Typer(add_completion=False)


@app.command()
@target_flags
def rebuild(
    *,
    keep_old: Annotated[
        bool,
        typer.Option("--keep-old", help="Keep the old tables as copies, next to the new ones."),
    ] = False,
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing", help="Continue where sources no longer have everything that was read."
        ),
    ] = False,
    flags: ReplayFlags,
) -> None:
    """Compute streams again from the beginning of their sources, with the code as it is now.

    The old tables serve readers until the new ones are complete, and each is then replaced in one commit. A rebuild
    that was killed is finished by the same command.

    Exit status: 0 fine, 1 it is not possible, 2 nothing was changed without --yes, 130 interrupted.
    """
    from tidemill import operations as lifecycle

    resolved, streams = flags.select()
    rebuilt = {stream.name for stream in streams}
    readers = [stream for stream in all_streams(resolved) if stream.name not in rebuilt]

    def change(stream: "Stream", **arguments: object) -> "Change":
        one = partial(lifecycle.rebuild, stream, resolved, keep_old=keep_old, allow_missing=allow_missing)
        return one(readers=readers, **arguments)  # type: ignore[arg-type]

    replay(change, resolved, streams, flags)

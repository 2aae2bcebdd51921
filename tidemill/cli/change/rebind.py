"""`tidemill rebind`: a source of a stream continues in another folder, topic or cluster."""

from functools import partial
from typing import Annotated

import typer

from tidemill.cli.shared.change import ChangeFlags, StreamArgument, change_stream
from tidemill.cli.shared.target_flags import target_flags

app = typer.Typer(add_completion=False)


@app.command()
@target_flags
def rebind(
    stream: StreamArgument,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The source: an argument of the function.")],
    *,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Read everything in the new folder or topic.")
    ] = False,
    flags: ChangeFlags,
) -> None:
    """Accept what the target binds a source to now, after a comparison of both sides.

    Exit status: 0 fine, 1 it is not possible, 2 nothing was changed without --yes, 130 interrupted.
    """
    from tidemill import operations as lifecycle

    resolved, bound = flags.stream(stream)
    change_stream(
        partial(lifecycle.rebind, bound, resolved, source, from_beginning=from_beginning),
        flags,
    )

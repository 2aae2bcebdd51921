"""`tidemill rename-source`: a source of a stream that has another name now continues where it was."""

from functools import partial
from typing import Annotated

import typer

from tidemill.cli.shared.change import ChangeFlags, StreamArgument, change_stream
from tidemill.cli.shared.target_flags import target_flags

app = typer.Typer(add_completion=False)


@app.command()
@target_flags
def rename_source(
    stream: StreamArgument,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The name in the checkpoint.")],
    new: Annotated[
        str,
        typer.Argument(
            metavar="NEW", help="The name in the definition; OLD again for a source that was removed."
        ),
    ],
    flags: ChangeFlags,
) -> None:
    """Let a source continue under another name, or continue one that was removed.

    Exit status: 0 fine, 1 it is not possible, 2 nothing was changed without --yes, 130 interrupted.
    """
    from tidemill import operations as lifecycle

    resolved, renamed = flags.stream(stream)
    change_stream(
        partial(lifecycle.rename_source, renamed, resolved, old, new),
        flags,
    )

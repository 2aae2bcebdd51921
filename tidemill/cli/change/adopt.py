"""`tidemill adopt`: a stream continues the checkpoint and the table of a query that plain Spark ran."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.shared.change import ChangeFlags, StreamArgument, change_stream
from tidemill.cli.shared.target_flags import target_flags

app = typer.Typer(add_completion=False)


@app.command()
@target_flags
def adopt(
    stream: StreamArgument,
    *,
    checkpoint: Annotated[
        Path, typer.Option(metavar="DIR", help="The checkpoint of the query, which is copied.")
    ],
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The table of the query, which is moved. Default: it is at the location of the stream's table.",
        ),
    ] = None,
    flags: ChangeFlags,
) -> None:
    """Continue a checkpoint and a table that plain Spark made, without reading anything again.

    Exit status: 0 fine, 1 it is not possible, 2 nothing was changed without --yes, 130 interrupted.
    """
    from tidemill import operations as lifecycle

    resolved, adopting = flags.stream(stream)
    change_stream(
        partial(
            lifecycle.adopt,
            adopting,
            resolved,
            checkpoint.absolute(),
            table=None if table is None else table.absolute(),
        ),
        flags,
    )

"""`tidemill reset`: a stream continues from other offsets, with empty state."""

from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from tidemill.cli.shared.change import ChangeFlags, StreamArgument, change_with_spark
from tidemill.cli.shared.target_flags import target_flags

app = typer.Typer(add_completion=False)


class Table(StrEnum):
    """What happens to the rows of a table."""

    KEEP = "keep"
    REPLACE = "replace"
    NEW = "new"


@app.command()
@target_flags
def reset(
    stream: StreamArgument,
    *,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="earliest, now, or offsets by source as JSON: "
            '\'{"events": {"orders": {"0": 120}}}\' for a topic, \'{"rows": 17}\' for a version of a table.',
        ),
    ],
    table: Annotated[
        Table,
        typer.Option("--table", help="Keep the rows, replace them, or replace them and keep a copy (new)."),
    ],
    allow_doubled: Annotated[
        bool, typer.Option("--allow-doubled", help="Rows may be added a second time.")
    ] = False,
    allow_skipped: Annotated[bool, typer.Option("--allow-skipped", help="Data may be left unread.")] = False,
    flags: ChangeFlags,
) -> None:
    """Let a stream continue from other offsets, in a new generation with empty state.

    The plan says which rows are doubled or skipped; either must be allowed with a flag of its own.

    Exit status: 0 fine, 1 it is not possible, 2 nothing was changed without --yes, 130 interrupted.
    """
    from tidemill import operations as lifecycle

    resolved, changed = flags.stream(stream)
    change_with_spark(
        partial(
            lifecycle.reset,
            changed,
            resolved,
            start=start,
            table=table.value,
            allow_doubled=allow_doubled,
            allow_skipped=allow_skipped,
        ),
        resolved,
        flags,
    )

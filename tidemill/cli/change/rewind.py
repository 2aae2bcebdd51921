"""`tidemill rewind`: the tables and the offsets of a stream go back to one of its batches."""

from functools import partial
from typing import Annotated

import typer

from tidemill.cli.shared.change import ChangeFlags, StreamArgument, change_with_spark
from tidemill.cli.shared.target_flags import all_streams, target_flags

app = typer.Typer(add_completion=False)


@app.command()
@target_flags
def rewind(
    stream: StreamArgument,
    *,
    to_batch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="The last batch that stays. tidemill checkpoint history lists the batches.",
        ),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="The last batch that the table had then: 2026-01-31T12:00, in UTC unless it has an offset.",
        ),
    ] = None,
    flags: ChangeFlags,
) -> None:
    """Take the tables and the offsets of a stream back together.

    The next run reads again what later batches had read, in a new generation, with the code as it is then. The
    checkpoint before is kept until it is pruned.

    Exit status: 0 fine, 1 it is not possible, 2 nothing was changed without --yes, 130 interrupted.
    """
    from tidemill import operations as lifecycle
    from tidemill.errors import ConfigurationError
    from tidemill.text.durations import flag_time

    if (to_batch is None) == (to_time is None):
        raise ConfigurationError("Name where to go back to: --to-batch N, or --to-time TIME.")
    resolved, rewound = flags.stream(stream)
    change_with_spark(
        partial(
            lifecycle.rewind,
            rewound,
            resolved,
            to_batch=to_batch,
            to_time=None if to_time is None else flag_time(to_time, what="--to-time"),
            readers=all_streams(resolved),
        ),
        resolved,
        flags,
    )

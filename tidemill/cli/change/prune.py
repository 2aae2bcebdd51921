"""`tidemill prune`: what earlier generations and operations have left behind is removed, past an age."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.shared.changes import ChangesFlags, apply_plans
from tidemill.cli.shared.confirmation import spark_of
from tidemill.cli.shared.output import STREAMS_WIDTH, new_table, output_console, print_json
from tidemill.cli.shared.target_flags import target_flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemill.operations import Pruning

app = typer.Typer(add_completion=False)


@app.command()
@target_flags
def prune(
    *,
    older_than: Annotated[
        str, typer.Option(metavar="DURATION", help="The age past which something is removed: 30d, 12h.")
    ] = "30d",
    flags: ChangesFlags,
) -> None:
    """Remove old generations' checkpoints, staging folders, repair copies and tombstones.

    A stream that a run holds is busy, which is no failure. Spark starts where tombstones are removed.

    Exit status: 0 fine, 1 it is not possible, 2 nothing was changed without --yes, 130 interrupted.
    """
    from tidemill import operations as lifecycle
    from tidemill.text.durations import flag_duration

    age = flag_duration(older_than, what="--older-than")
    target, streams = flags.select()
    with spark_of(target) as engine:
        results, changed = apply_plans(
            partial(lifecycle.prune, target=target, engine=engine, older_than=age),
            streams,
            flags,
            show=_print,
            planning="looking for what can be removed ...",
            applying="removing ...",
        )
    if flags.as_json:
        print_json(
            target=target.name,
            older_than_seconds=age.total_seconds(),
            changed=changed,
            streams=list(map(_document, results)),
        )
    elif changed:
        for result in results:
            if result.outcome == "busy":
                typer.echo(f"{result.stream}: busy: {result.reason}")
        removed = sum(result.bytes for result in results if result.outcome == "pruned")
        typer.echo(f"Done: {removed / 1e6:,.1f} MB removed.")


def _document(result: "Pruning") -> dict[str, Any]:
    return {
        "stream": str(result.stream),
        "outcome": result.outcome,
        "reason": result.reason,
        "bytes": result.bytes,
        "leftovers": [
            {
                "kind": leftover.kind,
                "path": str(leftover.path),
                "what": leftover.what,
                "bytes": leftover.bytes,
                "rows": leftover.rows,
            }
            for leftover in result.leftovers
        ],
    }


def _print(results: "Sequence[Pruning]") -> None:
    from rich.markup import escape

    table = new_table("Stream", "Kind", "MB", "What", right=("MB",), no_wrap=("Stream", "Kind"))
    for result in results:
        for leftover in result.leftovers:
            megabytes = "" if leftover.rows is not None else f"{leftover.bytes / 1e6:,.1f}"
            table.add_row(escape(str(result.stream)), leftover.kind, megabytes, escape(leftover.what))
    console = output_console(STREAMS_WIDTH)
    if table.row_count:
        console.print(table)
    else:
        console.print("There is nothing to remove.")

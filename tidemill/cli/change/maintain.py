"""`tidemill maintain`: small files compacted, files and commits removed that nothing needs any more."""

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.shared.changes import ChangesFlags, apply_plans
from tidemill.cli.shared.confirmation import spark_of
from tidemill.cli.shared.output import STREAMS_WIDTH, new_table, output_console, print_json
from tidemill.cli.shared.target_flags import target_flags
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemill.operations import Maintenance
    from tidemill.operations.housekeeping.maintain import TableMaintenance

app = typer.Typer(add_completion=False)

Keep = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="How far back streams can be rewound afterwards: 7d, 12h. With less than 7d, running queries of other "
        "programs can fail.",
    ),
]


@app.command()
@target_flags
def maintain(*, keep: Keep = "7d", flags: ChangesFlags) -> None:
    """Compact the small files of tables, and remove files and commits that no reader, check or rewind needs.

    A stream that a run holds is busy, which is no failure. Spark starts where something is to compact.

    Exit status: 0 fine, 1 it is not possible, 2 nothing was changed without --yes, 130 interrupted.
    """
    from tidemill import operations as lifecycle
    from tidemill.text.durations import flag_duration

    length = flag_duration(keep, what="--keep")
    target, streams = flags.select()
    known = target.pipelines().every_stream()
    with spark_of(target) as engine:
        results, changed = apply_plans(
            partial(lifecycle.maintain, target=target, engine=engine, streams=known, keep=length),
            streams,
            flags,
            show=print_tables,
            planning="reading the logs of tables ...",
            applying="maintaining tables ...",
        )
    if flags.as_json:
        print_json(
            target=target.name,
            keep_seconds=length.total_seconds(),
            changed=changed,
            streams=documents(results),
        )
    elif changed:
        print_tables(results)


def documents(results: "Sequence[Maintenance]") -> list[dict[str, Any]]:
    """Return streams as `maintain --json` prints them."""
    return [
        {
            "stream": str(result.stream),
            "outcome": result.outcome,
            "reason": result.reason,
            "tables": [_table(table) for table in result.tables],
        }
        for result in results
    ]


def _table(table: "TableMaintenance") -> dict[str, Any]:
    return {
        "table": str(table.table),
        "version": table.version,
        "before": asdict(table.before),
        "after": None if table.after is None else asdict(table.after),
        "small_files": table.small_files,
        "removed_files": table.files,
        "removed_bytes": table.bytes,
        "removed_log_files": table.log_files,
        "horizon": table.horizon,
        "held_by": list(table.held_by),
    }


def print_tables(results: "Sequence[Maintenance]") -> None:
    """Print one row per table."""
    from rich.markup import escape

    table = new_table(
        "Stream",
        "Table",
        "Files",
        "MB",
        "Compact",
        "Remove",
        "MB",
        "Log files",
        "Horizon",
        right=("Files", "MB", "Compact", "Remove", "Log files", "Horizon"),
        no_wrap=("Stream", "Table"),
    )
    for result in results:
        for own in result.tables:
            size = own.after or own.before
            table.add_row(
                escape(str(result.stream)),
                escape(own.table.name),
                f"{size.files:,}",
                _megabytes(size.bytes),
                f"{own.small_files:,}",
                f"{own.files:,}",
                _megabytes(own.bytes),
                f"{size.log_files:,}, {'-' if own.after is None else 'removed'} {own.log_files:,}".replace(
                    "- ", "-"
                ),
                f"{own.horizon} of {own.version}",
            )
    console = output_console(STREAMS_WIDTH)
    console.print(table)
    for result in results:
        if result.outcome == "busy":
            console.print(f"{result.stream}: busy: {result.reason}", markup=False)
        for own in result.tables:
            for who in own.held_by:
                console.print(f"{own.table.name}: kept for {who}.", markup=False)
    console.print(f"{pluralize(len(results), 'stream')}.", markup=False)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f}"

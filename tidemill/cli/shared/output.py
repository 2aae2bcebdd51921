"""Output of the commands: tables for people, JSON for programs, and exit statuses."""

import json
import os
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tidemill.text.report import Report

SCHEMA_VERSION = 1
# A problem was found; the command could not do its work; it was interrupted (docs/command.md).
EXIT_PROBLEM, EXIT_NOT_DONE, EXIT_INTERRUPTED = 1, 2, 130

STREAMS_WIDTH = 118  # what a table with the names of streams needs to be readable
_PIPE_WIDTH = 240


def output_console(min_width: int = 0) -> "Console":
    """Return standard output, for tables and results.

    Tables fold to the width of the terminal. In a file or a pipe their lines stay whole.

    Args:
        min_width: What a table needs to be readable: in a narrower terminal its lines wrap instead.
    """
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_WIDTH
    console.width = max(console.width, min_width)
    return console


def progress_console(*, quiet: bool = False) -> "Console":
    """Return standard error, for progress."""
    from rich.console import Console

    return Console(stderr=True, quiet=quiet, highlight=False)


def new_table(*columns: str, right: "tuple[str, ...]" = (), no_wrap: "tuple[str, ...]" = ()) -> "Table":
    """Return an empty table; without columns it has no header.

    Args:
        columns: The headings.
        right: The columns that are aligned to the right.
        no_wrap: The columns whose cells stay on one line.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", show_header=bool(columns))
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=column in no_wrap,
            overflow="fold",
        )
    return table


def print_report(report: "Report", *, as_json: bool, target: str | None = None) -> None:
    """Print a report on standard output: as one JSON object, or as a table and lines.

    Args:
        as_json: Whether a program reads it.
        target: The name of the target; None for a command that has none.
    """
    if as_json:
        print_json(**({} if target is None else {"target": target}), **report.content)
        return
    from rich.markup import escape

    console = output_console(STREAMS_WIDTH)
    if report.columns:
        table = new_table(
            *(column.heading for column in report.columns),
            right=tuple(column.heading for column in report.columns if column.right),
            no_wrap=tuple(column.heading for column in report.columns if column.whole),
        )
        for row in report.items if report.rows is None else report.rows:
            cells = [
                (cell, column.styles.get(cell)) for column in report.columns for cell in (column.of(row),)
            ]
            table.add_row(
                *(f"[{style}]{escape(cell)}[/]" if style else escape(cell) for cell, style in cells)
            )
        console.print(table)
    for line in report.lines:
        console.print(line, markup=False, soft_wrap=True)


def print_json(**content: Any) -> None:
    """Print one JSON object on standard output: the version of its schema, and the content."""
    typer.echo(json.dumps({"schema_version": SCHEMA_VERSION, **content}))


def print_problem(message: str) -> None:
    """Print something that is wrong on standard error."""
    typer.secho(message, err=True, fg=typer.colors.RED)


def print_note(message: str) -> None:
    """Print something worth knowing on standard error."""
    typer.secho(message, err=True, fg=typer.colors.YELLOW)

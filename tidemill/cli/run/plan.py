"""`tidemill plan`: what the current code would do to each stream, before it runs."""

from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.shared.output import (
    EXIT_NOT_DONE,
    EXIT_PROBLEM,
    print_note,
    print_problem,
    print_report,
    progress_console,
)
from tidemill.cli.shared.target_flags import StreamFlags, target_flags
from tidemill.text.report import Column, Report, Row, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemill.definitions.stream import Stream
    from tidemill.operations.edits.code_changes import CodeChange
    from tidemill.target.resolve import ResolvedTarget

app = typer.Typer(add_completion=False)

_COLORS = {
    "nothing": "bright_black",
    "safe": "green",
    "unknown": "magenta",
    "mixes state": "red",
    "refused by Spark": "red",
    "refused": "red",
}


def _verdict(row: Row) -> str:
    return str(row.get("verdict", "")).replace("_", " ").replace("spark", "Spark")


_COLUMNS = (
    Column("Stream", "stream", whole=True),
    Column("Verdict", _verdict, whole=True, styles=_COLORS),
    Column("Operator", "operator"),
    Column("Property", "property"),
    Column("Before", "before"),
    Column("Now", "now"),
)


@app.command()
@target_flags
def plan(flags: StreamFlags) -> None:
    """Show what the current code would do to each stream, before it runs. Nothing is changed.

    Exit status: 0 if every stream can run and its state keeps its meaning, 1 otherwise, 2 if a source could not be
    reached, 130 if interrupted.
    """
    target, streams = flags.select()
    changes = _changes(target, streams, quiet=flags.as_json)
    items = list(map(_item, changes))
    rows = rows_of(items, "differences", keep_empty=True, repeat=False)
    report = Report(items=items, columns=_COLUMNS, rows=rows)
    print_report(report, as_json=flags.as_json, target=target.name)
    for change in changes:
        for warning in change.warnings:
            print_note(f"{change.stream.name}: {warning}")
        for source, schema in change.schemas.items():
            print_note(f"{change.stream.name}: the columns of its source {source!r}, as inferred: {schema}")
        if change.fix and not flags.as_json:
            print_problem(f"{change.stream.name}: {change.what} Fix: {change.fix}")
    if any(change.error is not None and change.error.transient for change in changes):
        raise typer.Exit(EXIT_NOT_DONE)
    if not all(change.is_fine for change in changes):
        raise typer.Exit(EXIT_PROBLEM)


def _item(change: "CodeChange") -> dict[str, Any]:
    return {
        "stream": str(change.stream.name),
        "verdict": change.kind,
        "what": change.what,
        "differences": [
            {
                "operator": difference.operator or None,
                "property": difference.name,
                "before": difference.before or None,
                "now": difference.now or None,
            }
            for difference in change.differences
        ],
        "fix": change.fix or None,
        "warnings": list(change.warnings),
        "schemas": dict(change.schemas),
    }


def _changes(target: "ResolvedTarget", streams: "Sequence[Stream]", *, quiet: bool) -> "list[CodeChange]":
    from tidemill.cli.shared.interrupt import interruptible
    from tidemill.engines.engine import SparkEngine
    from tidemill.operations.edits.code_changes import code_changes

    console = progress_console(quiet=quiet)
    engine = SparkEngine(target.spark)
    started = False

    def show(stream: "Stream") -> None:
        nonlocal started
        status.update(f"{stream.name}: {'reading the plan' if started else 'starting Spark'} ...")
        if not started and not console.is_terminal:
            console.print("starting Spark ...")
        started = True

    with interruptible(), console.status("") as status:
        try:
            return list(code_changes(streams, target, engine, on_build=show))
        finally:
            engine.stop()

"""`tidemill plan`: what the code as it is now would do to each stream, before it runs."""

from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.shared.output import (
    EXIT_NOT_DONE,
    EXIT_PROBLEM,
    STREAMS_WIDTH,
    new_table,
    output_console,
    print_json,
    print_note,
    print_problem,
    progress_console,
)
from tidemill.cli.shared.target_flags import StreamFlags, target_flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemill.definitions.stream import Stream
    from tidemill.operations.edits.code_changes import CodeChange, Kind
    from tidemill.target.resolve import ResolvedTarget

app = typer.Typer(add_completion=False)

_VERDICTS: "dict[Kind, str]" = {
    "nothing": "[bright_black]nothing[/]",
    "safe": "[green]safe[/]",
    "unknown": "[magenta]unknown[/]",
    "mixes_state": "[red]mixes state[/]",
    "refused_by_spark": "[red]refused by Spark[/]",
    "refused": "[red]refused[/]",
}


@app.command()
@target_flags
def plan(flags: StreamFlags) -> None:
    """Show what the code as it is now would do to each stream, before it runs. Nothing is changed.

    Exit status: 0 if every stream can run and its state keeps its meaning, 1 otherwise, 2 if a stream could not be
    judged, 130 interrupted.
    """
    target, streams = flags.select()
    changes = _changes(target, streams, quiet=flags.as_json)
    if flags.as_json:
        print_json(target=target.name, streams=[as_document(change) for change in changes])
    else:
        _print(changes)
    for change in changes:
        for warning in change.warnings:
            print_note(f"{change.stream.name}: {warning}")
        if change.fix and not flags.as_json:
            print_problem(f"{change.stream.name}: {change.what} Fix: {change.fix}")
    if any(change.error is not None and change.error.transient for change in changes):
        raise typer.Exit(EXIT_NOT_DONE)
    if not all(change.is_fine for change in changes):
        raise typer.Exit(EXIT_PROBLEM)


def as_document(change: "CodeChange") -> dict[str, Any]:
    """Return one stream as `plan --json` prints it."""
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


def _print(changes: "list[CodeChange]") -> None:
    from rich.markup import escape

    table = new_table(
        "Stream", "Verdict", "Operator", "Property", "Before", "Now", no_wrap=("Stream", "Verdict")
    )
    for change in changes:
        head = (escape(str(change.stream.name)), _VERDICTS[change.kind])
        for difference in change.differences:
            cells = (difference.operator, difference.name, difference.before, difference.now)
            table.add_row(*head, *map(escape, cells))
            head = ("", "")
        if not change.differences:
            table.add_row(*head)
    output_console(STREAMS_WIDTH).print(table)

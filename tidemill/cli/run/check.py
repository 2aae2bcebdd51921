"""`tidemill check`: the checks of streams, without starting Spark or Dagster."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.shared.output import (
    EXIT_NOT_DONE,
    EXIT_PROBLEM,
    STREAMS_WIDTH,
    new_table,
    output_console,
    print_json,
)
from tidemill.cli.shared.target_flags import StreamFlags, target_flags
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidemill.checks.result import CheckResult, Status
    from tidemill.definitions.stream import Stream
    from tidemill.target.resolve import ResolvedTarget
    from tidemill.text.names import StreamName

    Results = Mapping[StreamName, tuple[CheckResult, ...]]

app = typer.Typer(add_completion=False)

COLORS: "Mapping[Status, str]" = {
    "pass": "green",
    "warn": "yellow",
    "error": "red",
    "unknown": "magenta",
}


@app.command()
@target_flags
def check(flags: StreamFlags) -> None:
    """Evaluate the checks of streams: checkpoint, watermark, state, exactly-once, backlog and more.

    A run evaluates the same checks. Neither Spark nor Dagster is started.

    Exit status: 0 if all pass or warn, 1 for an error, 2 if a check could not be evaluated.
    """
    from tidemill.checks.evaluation import evaluate

    target, streams = flags.select()
    known = {stream.name: stream for stream in target.streams()}
    now = datetime.now(UTC)
    results = {stream.name: evaluate(stream, target, now, streams=known) for stream in streams}
    never_run = {stream.name for stream in streams if _has_never_run(stream, target)}
    if flags.as_json:
        documents = [as_document(name, own, name in never_run) for name, own in results.items()]
        print_json(target=target.name, checked_at=now.isoformat(timespec="milliseconds"), streams=documents)
    else:
        _print(results, never_run, target)
    statuses = {result.status for own in results.values() for result in own}
    if "error" in statuses:
        raise typer.Exit(EXIT_PROBLEM)
    if "unknown" in statuses:
        raise typer.Exit(EXIT_NOT_DONE)


def as_document(name: "StreamName", results: "Sequence[CheckResult]", never_run: bool) -> dict[str, Any]:
    """Return one stream as `check --json` prints it."""
    return {
        "stream": str(name),
        "never_run": never_run,
        "checks": [check_document(result) for result in results],
    }


def check_document(result: "CheckResult") -> dict[str, Any]:
    """Return the result of a check as `check --json` and `run --json` print it."""
    return {
        "check": result.name,
        "status": result.status,
        "severity": result.severity,
        "summary": result.summary,
        "numbers": dict(result.numbers),
    }


def _has_never_run(stream: "Stream", target: "ResolvedTarget") -> bool:
    from tidemill.errors import TidemillError
    from tidemill.records.stream_records import StreamRecords

    try:
        return StreamRecords(target.lake, stream.name).manifest() is None
    except TidemillError:
        return False


def _print(results: "Results", never_run: "set[StreamName]", target: "ResolvedTarget") -> None:
    """Print the table for people: one row per check; a stream that has never run has one row as long as it is sound."""
    from rich.markup import escape

    table = new_table("Stream", "Check", "Status", "Summary", no_wrap=("Stream", "Check", "Status"))
    counts: dict[str, int] = {}
    for name, own in results.items():
        if name in never_run and all(result.passed for result in own):
            table.add_row(escape(str(name)), "", "[cyan]never run[/]", f"tidemill run {name}")
            continue
        for number, result in enumerate(own):
            counts[result.status] = counts.get(result.status, 0) + 1
            table.add_row(
                "" if number else escape(str(name)),
                result.name,
                f"[{COLORS[result.status]}]{result.status}[/]",
                escape(result.summary),
            )
    console = output_console(STREAMS_WIDTH)
    console.print(table)
    judged = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no check"
    streams = pluralize(len(results), "stream")
    console.print(f"{streams}: {judged}; target {target.name}, lake {target.lake.root}", markup=False)

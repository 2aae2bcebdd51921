"""`tidemill check`: the checks of streams, without starting Spark or Dagster."""

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.shared.output import EXIT_NOT_DONE, EXIT_PROBLEM, print_report
from tidemill.cli.shared.target_flags import StreamFlags, target_flags
from tidemill.text.plurals import pluralize
from tidemill.text.report import Column, Report, Row, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemill.checks.result import CheckResult
    from tidemill.definitions.stream import Stream
    from tidemill.target.resolve import ResolvedTarget

app = typer.Typer(add_completion=False)

COLORS: "Mapping[str, str]" = {
    "pass": "green",
    "warn": "yellow",
    "error": "red",
    "unknown": "magenta",
}
_COLUMNS = (
    Column("Stream", "stream", whole=True),
    Column("Check", "check", whole=True),
    Column("Status", "status", whole=True, styles={**COLORS, "never run": "cyan"}),
    Column("Summary", "summary"),
)


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
    items: list[Row] = [
        {
            "stream": str(stream.name),
            "never_run": _has_never_run(stream, target),
            "checks": list(map(check_document, evaluate(stream, target, now, streams=known))),
        }
        for stream in streams
    ]
    counts = Counter(one["status"] for item in items if not _is_unseen(item) for one in item["checks"])
    counted = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no check"
    summary = f"{pluralize(len(items), 'stream')}: {counted}; target {target.name}, lake {target.lake.uri}"
    report = Report(
        items=items,
        head={"checked_at": now.isoformat(timespec="milliseconds")},
        columns=_COLUMNS,
        rows=[row for item in items for row in _rows(item)],
        lines=(summary,),
    )
    print_report(report, as_json=flags.as_json, target=target.name)
    if counts["error"]:
        raise typer.Exit(EXIT_PROBLEM)
    if counts["unknown"]:
        raise typer.Exit(EXIT_NOT_DONE)


def _is_unseen(item: Row) -> bool:
    """Return whether a stream has never run, and is sound."""
    return item["never_run"] and all(one["status"] == "pass" for one in item["checks"])


def _rows(item: Row) -> list[Row]:
    """Return a row per check, or one for a stream that has never run."""
    if _is_unseen(item):
        name = item["stream"]
        return [{"stream": name, "status": "never run", "summary": f"tidemill run {name}"}]
    return rows_of([item], "checks", repeat=False)


def check_document(result: "CheckResult") -> dict[str, Any]:
    """Return the result of a check as JSON."""
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

"""`tidemill status`: new data, running streams and problems, without starting Spark or Dagster."""

from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.shared.output import (
    EXIT_PROBLEM,
    STREAMS_WIDTH,
    new_table,
    output_console,
    print_json,
    print_note,
    print_problem,
)
from tidemill.cli.shared.target_flags import StreamFlags, target_flags

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidemill.run.decide.status import State, Status
    from tidemill.target.resolve import ResolvedTarget

app = typer.Typer(add_completion=False)

_COLORS: "Mapping[State, str]" = {
    "never_run": "cyan",
    "idle": "bright_black",
    "behind": "yellow",
    "running": "green",
    "failed": "red",
    "corrupt": "red",
}


@app.command()
@target_flags
def status(flags: StreamFlags) -> None:
    """Show which streams have new data, which are running, and what is wrong.

    Neither Spark nor Dagster is started.

    Exit status: 0, 1 if a stream failed or is corrupt, 2 if the settings or definitions are wrong.
    """
    from tidemill.run.decide.status import status_of

    target, streams = flags.select()
    statuses = [status_of(stream, target) for stream in streams]
    if flags.as_json:
        print_json(target=target.name, streams=[as_document(status) for status in statuses])
    else:
        _print(statuses, target)
    _print_problems(statuses)
    if any(status.state in ("failed", "corrupt") for status in statuses):
        raise typer.Exit(EXIT_PROBLEM)


def as_document(status: "Status") -> dict[str, Any]:
    """Return one stream as `status --json` prints it.

    `backlog` counts the unread files, messages and table versions of all sources that trigger the stream; it is
    null where a source could not be read.
    """
    return {
        "stream": status.stream,
        "state": status.state,
        "reason": " ".join(status.reasons),
        "backlog": _backlog(status),
        "running_batch": status.running_batch,
        "watermark": _watermark(status),
        "last_batch": status.last_batch,
        "last_run_at": status.last_run_at,
        "generation": status.generation,
        "state_rows": status.state_rows,
        "warnings": list(status.warnings),
    }


def _backlog(status: "Status") -> dict[str, Any] | None:
    if status.backlog is None:
        return None
    counts = {"files": 0, "messages": 0, "versions": 0}
    for backlog in status.backlog.values():
        counts[backlog.unit] += backlog.count
    amount = status.waiting
    oldest = None if amount is None else amount.oldest_at
    return {
        **counts,
        "rows": None if amount is None else amount.rows,
        "bytes": None if amount is None else amount.bytes,
        "oldest_at": None if oldest is None else oldest.isoformat(timespec="seconds"),
    }


def _watermark(status: "Status") -> str | None:
    from tidemill.records.ledger_line import iso

    return None if status.watermark_ms is None else iso(status.watermark_ms)


def _print(statuses: "Sequence[Status]", target: "ResolvedTarget") -> None:
    """Print the table for people."""
    from rich.markup import escape

    columns = ("Stream", "State", "Waiting", "Watermark", "Last run", "Batch", "State rows")
    table = new_table(
        *columns,
        right=("Batch", "State rows"),
        no_wrap=tuple(column for column in columns if column != "Waiting"),
    )
    for status in statuses:
        table.add_row(
            escape(status.stream), f"[{_COLORS[status.state]}]{status.state}[/]", *map(escape, _cells(status))
        )
    console = output_console(STREAMS_WIDTH)
    console.print(table)
    console.print(f"target {target.name}, lake {target.lake.root}, times in UTC", markup=False)


def _cells(status: "Status") -> tuple[str, ...]:
    """Return the cells of a stream after its name and state."""
    backlogs = (
        None if status.backlog is None else [str(backlog) for backlog in status.backlog.values() if backlog]
    )
    return (
        "?" if backlogs is None else ", ".join(backlogs),
        _to_the_minute(_watermark(status)),
        _to_the_minute(status.last_run_at),
        _batch(status),
        "" if status.state_rows is None else f"{status.state_rows:,}",
    )


def _batch(status: "Status") -> str:
    if status.running_batch is not None:
        return f"{status.running_batch} runs"
    return "" if status.last_batch is None else str(status.last_batch)


def _to_the_minute(time: str | None) -> str:
    """Return a time of ISO-8601 in UTC as people read it."""
    return "" if time is None else time[:16].replace("T", " ")


def _print_problems(statuses: "Sequence[Status]") -> None:
    """Print on standard error why streams failed, are corrupt or could not be read."""
    for status in statuses:
        if status.state in ("failed", "corrupt") or status.backlog is None:
            # A recorded error begins with the stream's name, other reasons do not.
            reasons = " ".join(status.reasons).removeprefix(f"{status.stream}: ")
            print_problem(f"{status.stream}: {reasons}")
        for warning in status.warnings:
            print_note(f"{status.stream}: warning: {warning}")

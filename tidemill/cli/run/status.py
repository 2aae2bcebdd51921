"""`tidemill status`: new data, running streams and problems, without starting Spark or Dagster."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.shared.output import (
    EXIT_PROBLEM,
    print_note,
    print_problem,
    print_report,
)
from tidemill.cli.shared.target_flags import StreamFlags, target_flags
from tidemill.text.durations import iso_of
from tidemill.text.plurals import pluralize
from tidemill.text.report import Column, Report, Row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidemill.run.decide.status import Status

app = typer.Typer(add_completion=False)

_UNITS = ("file", "message", "version")
_COLORS: "Mapping[str, str]" = {
    "never_run": "cyan",
    "idle": "bright_black",
    "behind": "yellow",
    "running": "green",
    "failed": "red",
    "corrupt": "red",
}


def _waiting(row: Row) -> str:
    if row["backlog"] is None:
        return "?"
    counts = {unit: row["backlog"][f"{unit}s"] for unit in _UNITS}
    parts = [pluralize(count, unit) for unit, count in counts.items() if count]
    return ", ".join([*parts, *(["not counted"] if row["polls"] else [])])


def _batch(row: Row) -> str:
    if row["running_batch"] is not None:
        return f"{row['running_batch']} runs"
    return "" if row["last_batch"] is None else str(row["last_batch"])


def _to_the_minute(time: str | None) -> str:
    """Return a time of ISO-8601 in UTC as people read it."""
    return "" if time is None else time[:16].replace("T", " ")


_COLUMNS = (
    Column("Stream", "stream", whole=True),
    Column("State", "state", whole=True, styles=_COLORS),
    Column("Waiting", _waiting),
    Column("Watermark", lambda row: _to_the_minute(row["watermark"]), whole=True),
    Column("Last run", lambda row: _to_the_minute(row["last_run_at"]), whole=True),
    Column("Batch", _batch, right=True, whole=True),
    Column("State rows", "state_rows", right=True, whole=True),
)


@app.command()
@target_flags
def status(flags: StreamFlags) -> None:
    """Show which streams have new data, which are running, and what is wrong.

    Neither Spark nor Dagster is started.

    Exit status: 0, 1 if a stream failed or is corrupt, or its name in a catalog leads elsewhere, 2 if the settings or
    definitions are wrong.
    """
    from tidemill.run.decide.status import statuses_of

    target, streams = flags.select()
    statuses = statuses_of(streams, target)
    summary = f"target {target.name}, lake {target.lake.uri}, times in UTC"
    report = Report(items=list(map(_item, statuses)), columns=_COLUMNS, lines=(summary,))
    print_report(report, as_json=flags.as_json, target=target.name)
    _print_problems(statuses)
    if any(status.state in ("failed", "corrupt") or _has_moved(status) for status in statuses):
        raise typer.Exit(EXIT_PROBLEM)


def _has_moved(status: "Status") -> bool:
    """Return whether a name in the catalog leads to another table."""
    return any(one.state == "moved" for one in status.catalog.values())


def _item(status: "Status") -> dict[str, Any]:
    """Return one stream as JSON.

    `backlog` counts the unread files, messages and table versions of all sources that trigger the stream; it is
    null where a source could not be read. `polls` has a sentence per source that cannot be counted. `sinks` has those
    that are no tables; their `last_batch` is what the last check `exactly_once` has seen there. `catalog` has what a
    catalog said about its tables when a run last asked it.
    """
    return {
        "stream": status.stream,
        "state": status.state,
        "reason": " ".join(status.reasons),
        "backlog": _backlog(status),
        "running_batch": status.running_batch,
        "watermark": iso_of(status.watermark_ms),
        "last_batch": status.last_batch,
        "last_run_at": status.last_run_at,
        "generation": status.generation,
        "state_rows": status.state_rows,
        "warnings": list(status.warnings),
        "polls": list(status.polls),
        "sinks": [asdict(sink) for sink in status.sinks],
        "catalog": [{"sink": sink, **asdict(one)} for sink, one in status.catalog.items()],
    }


def _backlog(status: "Status") -> dict[str, Any] | None:
    if status.backlog is None:
        return None
    counts = {f"{unit}s": 0 for unit in _UNITS}
    for backlog in status.backlog.values():
        if backlog.is_known:
            counts[f"{backlog.unit}"] += backlog.count
    amount = status.waiting
    oldest = None if amount is None else amount.oldest_at
    return {
        **counts,
        "rows": None if amount is None else amount.rows,
        "bytes": None if amount is None else amount.bytes,
        "oldest_at": None if oldest is None else oldest.isoformat(timespec="seconds"),
    }


def _print_problems(statuses: "Sequence[Status]") -> None:
    """Print on standard error why streams failed, are corrupt or could not be read."""
    for status in statuses:
        if status.state in ("failed", "corrupt") or status.backlog is None:
            # A recorded error begins with the stream's name, other reasons do not.
            reasons = " ".join(status.reasons).removeprefix(f"{status.stream}: ")
            print_problem(f"{status.stream}: {reasons}")
        for warning in status.warnings:
            print_note(f"{status.stream}: warning: {warning}")
        for poll in status.polls:
            print_note(f"{status.stream}: {poll}")
        for sink in status.sinks:
            last = "" if sink.last_batch is None else f", batch {sink.last_batch} at the last check"
            print_note(f"{status.stream}: writes to {sink.kind} {sink.name!r} ({sink.delivery}{last})")
        for table in status.catalog.values():
            if table.detail:
                show = print_problem if table.state == "moved" else print_note
                show(
                    f"{status.stream}: {table.detail} (The catalog was asked at {_to_the_minute(table.asked_at)}.)"
                )

"""`tidemill operations`: what was replayed, over which range, and by which code."""

from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.shared.output import print_report
from tidemill.cli.shared.target_flags import StreamFlags, target_flags
from tidemill.text.plurals import pluralize
from tidemill.text.report import Column, Report, Row

if TYPE_CHECKING:
    from tidemill.records.operation import Operation
    from tidemill.text.names import StreamName

app = typer.Typer(add_completion=False)

_NUMBERS = ("rows_before", "rows_after", "rows_added", "rows_removed", "rows_changed")


def _difference(row: Row) -> str:
    """Return how an operation has changed the rows; a rebuild only counts them."""
    before, after, added, removed, changed = map(row.get, _NUMBERS)
    if added is not None:
        return f"+{added:,} -{removed:,}" + (f", {changed:,} changed" if changed else "")
    return "" if before is None else f"{before:,} to {after:,}"


_COLUMNS = (
    Column("Stream", "stream", whole=True),
    Column("Operation", "kind"),
    Column(
        "Range", lambda row: None if row["begin"] is None else f"{row['begin']} to {row['end']}", whole=True
    ),
    Column("Began", "began_at"),
    Column("Ended", lambda row: row["ended_at"] or f"not finished; finish it: {row['command']}"),
    Column("Code", "code"),
    Column("Rows", _difference),
)


@app.command()
@target_flags
def operations(flags: StreamFlags) -> None:
    """List backfills, rebuilds and rewinds: their range, the code that computed it, and what they changed.

    Exit status: 0, 1 if an operation is not finished, 2 if the settings are wrong.
    """
    from tidemill.records.stream_records import StreamRecords

    target, streams = flags.select()
    items = []
    for stream in streams:
        records = StreamRecords(target.lake, stream.name)
        current = records.operation()
        every = [*records.operations(), *(() if current is None else (current,))]
        items += [_item(stream.name, operation) for operation in every]
    columns = _COLUMNS if items else ()
    report = Report(
        items=items, key="operations", columns=columns, lines=(pluralize(len(items), "operation"),)
    )
    print_report(report, as_json=flags.as_json, target=target.name)
    if any(item["ended_at"] is None for item in items):
        raise typer.Exit(1)


def _item(stream: "StreamName", operation: "Operation") -> dict[str, Any]:
    return {
        "stream": str(stream),
        "id": operation.id,
        "kind": operation.kind,
        "begin": operation.arguments.get("begin"),
        "end": operation.arguments.get("end"),
        "began_at": operation.began_at,
        "ended_at": operation.ended_at,
        "command": operation.command,
        "steps": list(operation.done),
        "code": operation.result.get("code"),
        **{name: operation.result.get(name) for name in _NUMBERS},
    }

"""`tidemill operations`: what was replayed, over which range, and by which code."""

from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.shared.output import STREAMS_WIDTH, new_table, output_console, print_json
from tidemill.cli.shared.target_flags import StreamFlags, target_flags
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemill.records.operation import Operation
    from tidemill.text.names import StreamName

app = typer.Typer(add_completion=False)

_NUMBERS = ("rows_before", "rows_after", "rows_added", "rows_removed", "rows_changed")
_COLUMNS = ("Stream", "Operation", "Range", "Began", "Ended", "Code", "Rows")


@app.command()
@target_flags
def operations(flags: StreamFlags) -> None:
    """List backfills, rebuilds and rewinds: their range, the code that computed it, and what they changed.

    Exit status: 0, 1 if one is not finished, or 2 if the settings are wrong.
    """
    from tidemill.records.stream_records import StreamRecords

    target, streams = flags.select()
    listed = []
    for stream in streams:
        records = StreamRecords(target.lake, stream.name)
        current = records.operation()
        every = [*records.operations(), *(() if current is None else (current,))]
        listed += [(stream.name, operation) for operation in every]
    if flags.as_json:
        documents = [_document(name, operation) for name, operation in listed]
        print_json(target=target.name, operations=documents)
    else:
        _print(listed)
    if any(operation.ended_at is None for _, operation in listed):
        raise typer.Exit(1)


def _document(stream: "StreamName", operation: "Operation") -> dict[str, Any]:
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


def _print(listed: "list[tuple[StreamName, Operation]]") -> None:
    table = new_table(*_COLUMNS, no_wrap=("Stream", "Range"))
    for stream, operation in listed:
        begin, end = operation.arguments.get("begin"), operation.arguments.get("end")
        table.add_row(
            str(stream),
            operation.kind,
            "" if begin is None else f"{begin} to {end}",
            operation.began_at,
            operation.ended_at or f"not finished; finish it: {operation.command}",
            str(operation.result.get("code", "")),
            _difference(operation.result),
        )
    console = output_console(STREAMS_WIDTH)
    if listed:
        console.print(table)
    console.print(pluralize(len(listed), "operation"), markup=False)


def _difference(result: "Mapping[str, Any]") -> str:
    """Return how an operation has changed the rows; a rebuild only counts them."""
    before, after, added, removed, changed = map(result.get, _NUMBERS)
    if added is not None:
        return f"+{added:,} -{removed:,}" + (f", {changed:,} changed" if changed else "")
    return "" if before is None else f"{before:,} to {after:,}"

"""`tidemill backfill status`: which ranges of a table were computed by which code."""

from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.shared.output import STREAMS_WIDTH, new_table, output_console, print_json
from tidemill.cli.shared.target_flags import StreamFlags, target_flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemill.operations import Coverage
    from tidemill.records.operation import Operation

app = typer.Typer(add_completion=False)

_COLUMNS = ("Stream", "Column", "From", "To", "Computed by", "Ended", "Code")


@app.command()
@target_flags
def status(flags: StreamFlags) -> None:
    """Show which ranges of tables were computed by which operation and code, without starting Spark.

    The last operation counts; all other rows are of the stream's own runs. Streams without backfill_by are left out.

    Exit status: 0, or 2 if the settings are wrong or no selected stream declares backfill_by.
    """
    from tidemill.errors import ConfigurationError
    from tidemill.operations.replay.coverage import coverage

    target, streams = flags.select()
    covered = [coverage(stream, target) for stream in streams if stream.backfill_by is not None]
    if not covered:
        raise ConfigurationError(
            "no selected stream declares backfill_by, so there are no ranges.",
            fix="select others; tidemill operations lists the rebuilds of all streams.",
        )
    if flags.as_json:
        print_json(target=target.name, streams=list(map(_document, covered)))
    else:
        _print(covered)


def _document(covered: "Coverage") -> dict[str, Any]:
    return {
        "stream": str(covered.stream),
        "column": covered.column,
        "ranges": [{"begin": span.begin, "end": span.end, **_operation(span.by)} for span in covered.ranges],
        "by_other_columns": [operation.id for operation in covered.other],
    }


def _operation(operation: "Operation | None") -> dict[str, Any]:
    """Return what computed a range; only nulls for the stream's own runs."""
    if operation is None:
        return dict.fromkeys(("operation", "kind", "ended_at", "code"))
    return {
        "operation": operation.id,
        "kind": operation.kind,
        "ended_at": operation.ended_at,
        "code": operation.result.get("code"),
    }


def _print(coverages: "Sequence[Coverage]") -> None:
    table = new_table(*_COLUMNS, no_wrap=("Stream", "From", "To"))
    for covered in coverages:
        for span in covered.ranges:
            by = span.by
            computed = ("its own runs", "", "") if by is None else (by.id, by.ended_at, by.result.get("code"))
            cells = (covered.stream, covered.column, span.begin or "first", span.end or "last", *computed)
            table.add_row(*(str(cell or "") for cell in cells))
    console = output_console(STREAMS_WIDTH)
    console.print(table)
    for covered in coverages:
        for operation in covered.other:
            console.print(f"{covered.stream}: {operation.id} is by another column or type.", markup=False)

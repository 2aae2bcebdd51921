"""What `tidemill run` prints: results and failed checks for people, and the document of `--json`."""

from typing import TYPE_CHECKING, Any

from tidemill.cli.run.check import COLORS, check_document
from tidemill.text.durations import iso_of
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from tidemill.checks.result import CheckResult
    from tidemill.run.execute.results import StreamResult
    from tidemill.text.names import StreamName

_OUTCOME_COLORS = {
    "updated": "green",
    "idle": "bright_black",
    "busy": "yellow",
    "failed": "red",
    "skipped": "yellow",
    "canceled": "yellow",
}


def print_result(result: "StreamResult", width: int, console: "Console") -> None:
    """Print one result, with its warnings."""
    from rich.markup import escape

    console.print(line(result, width), soft_wrap=True)
    for warning in result.warnings:
        console.print(f"[yellow] warning[/]  {result.stream!s:<{width}}  {escape(warning)}", soft_wrap=True)


def line(result: "StreamResult", width: int) -> str:
    """Return one result as a line for people, in rich's markup.

    Args:
        width: The width of the column of streams.
    """
    from rich.markup import escape

    head = f"[{_OUTCOME_COLORS[result.outcome]}]{result.outcome:>8}[/]  {result.stream!s:<{width}}"
    if result.outcome == "canceled":
        committed = f", {pluralize(len(result.batches), 'batch')} committed" if result.batches else ""
        return f"{head}  the run was interrupted{committed}"
    if result.error is not None:
        return f"{head}  {escape(str(result.error).removeprefix(f'{result.stream}: '))}"
    if result.outcome != "updated":
        return f"{head}  {result.reason}"
    parts = [f"{result.total('rows_read'):,} read", f"{result.total('rows_written'):,} written"]
    for count, unit in (
        (result.total("rows_quarantined"), "quarantined"),
        (result.total("rows_dropped"), "dropped"),
    ):
        if count:
            parts.append(f"{count:,} {unit}")
    if result.late.count:
        parts.append(pluralize(result.late.count, f"late {result.late.unit.removesuffix('s')}"))
    return f"{head}  {', '.join(parts)}, {pluralize(len(result.batches), 'batch')}, {result.seconds:.1f} s"


def print_failed_checks(
    checks: "Mapping[StreamName, Sequence[CheckResult]]", width: int, console: "Console"
) -> None:
    """Print the checks that did not pass, the worst of each stream first."""
    from rich.markup import escape

    for name, results in checks.items():
        failed = [result for result in results if not result.passed]
        for result in sorted(failed, key=lambda result: result.status):  # error, unknown, warn
            head = f"[{COLORS[result.status]}]{result.status:>8}[/]  {name!s:<{width}}"
            console.print(f"{head}  {result.name}: {escape(result.summary)}", soft_wrap=True)


def as_document(result: "StreamResult", checks: "Sequence[CheckResult] | None" = None) -> dict[str, Any]:
    """Return one result as `run --json` prints it.

    Args:
        checks: The results of the stream's checks; None where the run did not evaluate them.
    """
    error = result.error
    return {
        "stream": str(result.stream),
        "outcome": result.outcome,
        "reason": result.reason,
        "batches": len(result.batches),
        "rows_read": result.total("rows_read"),
        "rows_written": result.total("rows_written"),
        "rows_quarantined": result.total("rows_quarantined"),
        "rows_dropped": result.total("rows_dropped"),
        "late": {"count": result.late.count, "unit": result.late.unit},
        "watermark": iso_of(result.watermark_ms),
        "observed": result.observed,
        "seconds": result.seconds,
        "table_version": result.table_version,
        "warnings": list(result.warnings),
        "checks": None if checks is None else [check_document(check) for check in checks],
        "error": None
        if error is None
        else {
            "code": error.code,
            "type": type(error).__name__,
            "transient": error.transient,
            "what": error.what,
            "lost": error.lost,
            "fix": error.fix,
            "class": error.error_class,
        },
    }

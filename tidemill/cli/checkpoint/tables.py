"""The output of `tidemill checkpoint` for people: tables, findings and differences."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tidemill.cli.shared.output import new_table, output_console
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from rich.console import Console

    from tidemill.checkpoint import BatchHistory, Difference, Inspection, OperatorView
    from tidemill.checkpoint.verify import Verdict

T = TypeVar("T")
_COLORS = {"error": "red", "warning": "yellow", "info": "cyan"}


def show_inspections(inspections: "Sequence[Inspection]") -> None:
    """Print the contents of each checkpoint and what its next start does."""
    _show_each(inspections, _show_inspection)


def show_verdicts(verdicts: "Sequence[Verdict]") -> None:
    """Print the findings and the verdict of each checkpoint."""
    _show_each(verdicts, _show_verdict)


def _show_each(parts: "Sequence[T]", show: "Callable[[Console, T], None]") -> None:
    console = output_console()
    for number, part in enumerate(parts):
        if number:
            console.print()
        show(console, part)


def show_history(batches: "Sequence[BatchHistory]", measures: Sequence[Mapping[str, Any]]) -> None:
    """Print each batch, one line per source.

    Args:
        batches: The batches, oldest first.
        measures: The measures of each batch in the ledger.
    """
    from rich.markup import escape

    observes = any(measure["observed"] for measure in measures)
    columns = ("Batch", "Planned", "Watermark", "Source", "From", "To", "Rows", "Seconds")
    table = new_table(*columns, *(("Observed",) if observes else ()))
    for batch, measure in zip(batches, measures, strict=True):
        name = str(batch.batch_id) if batch.committed else f"{batch.batch_id} (not committed)"
        head = (name, _moment(batch.planned_ms), _watermark(batch.watermark_ms, known=not batch.problem))
        tail = (
            _count(measure["rows_read"]),
            _seconds(measure["seconds"]),
            *((escape(_observed(measure["observed"])),) if observes else ()),
        )
        ranges = [
            (source.end.key, (source.start and source.start.raw) or "-", source.end.raw or "-")
            for source in batch.sources
        ] or [("", "", "" if batch.problem is None else str(batch.problem))]
        for line, cells in enumerate(ranges):
            middle = (escape(cell) for cell in cells)
            table.add_row(*head, *middle, *tail) if line == 0 else table.add_row("", "", "", *middle)
    output_console().print(table)


def _observed(observed: Mapping[str, Mapping[str, Any]] | None) -> str:
    """Return the metrics of a batch in one line, each with the name of its observation."""
    return ", ".join(
        f"{name}.{metric} {json.dumps(value)}"
        for name, metrics in (observed or {}).items()
        for metric, value in metrics.items()
    )


def show_differences(differences: "Sequence[Difference]") -> None:
    """Print the differences between two checkpoints."""
    from rich.markup import escape

    console = output_console()
    if not differences:
        console.print("No difference.")
        return
    table = new_table("What", "Name", "A", "B")
    for difference in differences:
        sides = (difference.a, difference.b)
        values = (json.dumps(value) if value is not None else "-" for value in sides)
        table.add_row(difference.what, escape(difference.name), *(escape(value) for value in values))
    console.print(table)


def _show_inspection(console: "Console", inspection: "Inspection") -> None:
    from rich.markup import escape

    from tidemill.checkpoint.document import describe_start
    from tidemill.checkpoint.positions import describe_offset

    facts = new_table()
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    rows = {
        "Checkpoint": inspection.path,
        "Query": inspection.query_id or "unknown",
        "Formats": f"offset log {_versions(inspection.offset_log_versions)}, "
        f"commit log {_versions(inspection.commit_log_versions)}",
        "Planned": _batch(inspection.latest_offset_batch),
        "Committed": _batch(inspection.latest_committed_batch),
        "Watermark": _watermark(inspection.watermark_ms, known=inspection.next_start is not None)
        or "unknown",
        "Next start": describe_start(inspection.next_start),
    }
    for name, value in rows.items():
        facts.add_row(name, escape(value))
    console.print(facts)
    if inspection.sources:
        console.print()
        sources = new_table("Source", "Kind", "Read up to")
        for source in inspection.sources:
            kind = inspection.recognize(source).kind
            sources.add_row(escape(source.key), kind, escape(describe_offset(source, inspection.recognize)))
        console.print(sources)
    if inspection.operators:
        console.print()
        operators = new_table(
            "Operator", "Stores", "Partitions", "Provider", "Version", "Kept", "Files", "Size"
        )
        for view in inspection.operators:
            operators.add_row(*(escape(cell) for cell in _operator_cells(view)))
        console.print(operators)
    if inspection.conf:
        console.print()
        pinned = new_table("Pinned setting", "Value")
        for name, value in sorted(inspection.conf.items()):
            pinned.add_row(escape(name), escape(value))
        console.print(pinned)
    for problem in inspection.problems:
        console.print(f"[red]unreadable[/] {escape(str(problem))}", soft_wrap=True)


def _operator_cells(view: "OperatorView") -> tuple[str, ...]:
    return (
        f"{view.operator.id} {view.operator.name or '?'}",
        ", ".join(store.name for store in view.operator.stores),
        str(view.operator.partitions),
        view.provider or "?",
        "" if view.version is None else str(view.version),
        "" if view.versions is None else f"{view.versions[0]} to {view.versions[1]}",
        f"{view.files:,}",
        _size(view.bytes),
    )


def _show_verdict(console: "Console", verdict: "Verdict") -> None:
    from rich.markup import escape

    from tidemill.checkpoint.document import describe_start

    inspection = verdict.inspection
    console.print(f"[bold]{escape(inspection.path)}[/]", soft_wrap=True)
    console.print(f"Next start: {escape(describe_start(inspection.next_start))}", soft_wrap=True)
    for finding in verdict.findings:
        color = _COLORS[finding.severity]
        where = f" {escape(finding.where)}" if finding.where else ""
        console.print(f"[{color}]{finding.severity}[/] [bold]{finding.code}[/]{where}", soft_wrap=True)
        console.print(f"    {escape(finding.what)}", soft_wrap=True)
        if finding.fix:
            console.print(f"    Fix: {escape(finding.fix)}", soft_wrap=True)
    errors = sum(finding.severity == "error" for finding in verdict.findings)
    scope = "what a start needs" if verdict.level == "quick" else "every file"
    count = pluralize(errors, "error")
    console.print(f"[green]Sound[/] ({scope} was read)." if verdict.sound else f"[red]{count}[/].")


def _versions(versions: Sequence[int]) -> str:
    return ", ".join(f"v{version}" for version in versions) or "unknown"


def _batch(batch: int | None) -> str:
    return "no batch" if batch is None else f"batch {batch}"


def _moment(milliseconds: int | None) -> str:
    from tidemill.checkpoint.document import describe_time

    return "" if milliseconds is None else describe_time(milliseconds)


def _watermark(milliseconds: int | None, *, known: bool) -> str:
    return _moment(milliseconds) or ("none" if known else "")


def _count(rows: int | None) -> str:
    return "" if rows is None else f"{rows:,}"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f}"


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:  # noqa: PLR2004 -- SI units
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"

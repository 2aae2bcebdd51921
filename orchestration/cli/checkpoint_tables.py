"""What `tidemill checkpoint` shows to people: tables, findings and differences."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestration.cli.output import new_table, output_console

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.streaming.checkpoint import BatchHistory, Difference, Inspection, OperatorView, Verdict

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}


def show_inspections(found: "Sequence[Inspection]") -> None:
    """What is in each checkpoint, and what its next start will do."""
    console = output_console()
    for number, seen in enumerate(found):
        if number:
            console.print()
        _show_inspection(console, seen)


def show_verdicts(found: "Sequence[Verdict]") -> None:
    """The findings of each checkpoint, and whether it is sound."""
    console = output_console()
    for number, verdict in enumerate(found):
        if number:
            console.print()
        _show_verdict(console, verdict)


def show_history(batches: "Sequence[BatchHistory]", told: Sequence[Mapping[str, Any]]) -> None:
    """Batch by batch, a line for each source.

    Args:
        batches: The batches, oldest first.
        told: What the ledger says of each.
    """
    from rich.markup import escape

    table = new_table("Batch", "Planned", "Watermark", "Source", "From", "To", "Rows", "Seconds")
    for batch, of_ledger in zip(batches, told, strict=True):
        name = str(batch.batch_id) if batch.committed else f"{batch.batch_id} (not committed)"
        head = (name, _moment(batch.planned_ms), _moment(batch.watermark_ms))
        tail = (_count(of_ledger["rows_read"]), _seconds(of_ledger["seconds"]))
        ranges = [
            (source.end.key, (source.start and source.start.raw) or "-", source.end.raw or "-")
            for source in batch.sources
        ] or [("", "", "" if batch.problem is None else str(batch.problem))]
        for number, cells in enumerate(ranges):
            middle = (escape(cell) for cell in cells)
            table.add_row(*head, *middle, *tail) if number == 0 else table.add_row("", "", "", *middle)
    output_console().print(table)


def show_differences(differences: "Sequence[Difference]") -> None:
    """What differs between two checkpoints."""
    from rich.markup import escape

    console = output_console()
    if not differences:
        console.print("No difference.")
        return
    table = new_table("What", "Name", "A", "B")
    for each in differences:
        values = (json.dumps(value) if value is not None else "-" for value in (each.a, each.b))
        table.add_row(each.what, escape(each.name), *(escape(value) for value in values))
    console.print(table)


def _show_inspection(console: "Console", seen: "Inspection") -> None:
    from rich.markup import escape
    from rich.table import Table

    from pipelines.streaming.checkpoint.describe import offset_in_words, start_in_words

    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    rows = {
        "Checkpoint": seen.path,
        "Query": seen.query_id or "unknown",
        "Formats": f"offset log {_versions(seen.offset_log_versions)}, "
        f"commit log {_versions(seen.commit_log_versions)}",
        "Planned": _batch(seen.latest_offset_batch),
        "Committed": _batch(seen.latest_committed_batch),
        "Watermark": _moment(seen.watermark_ms) or "unknown",
        "Next start": start_in_words(seen.next_start),
    }
    for name, value in rows.items():
        facts.add_row(name, escape(value))
    console.print(facts)
    if seen.sources:
        console.print()
        sources = new_table("Source", "Kind", "Read up to")
        for source in seen.sources:
            sources.add_row(escape(source.key), source.kind, escape(offset_in_words(source)))
        console.print(sources)
    if seen.operators:
        console.print()
        operators = new_table(
            "Operator", "Stores", "Partitions", "Provider", "Version", "Kept", "Files", "Size"
        )
        for view in seen.operators:
            operators.add_row(*(escape(cell) for cell in _operator_cells(view)))
        console.print(operators)
    if seen.conf:
        console.print()
        pinned = new_table("Pinned setting", "Value")
        for name, value in sorted(seen.conf.items()):
            pinned.add_row(escape(name), escape(value))
        console.print(pinned)
    for problem in seen.problems:
        console.print(f"[red]cannot be read[/] {escape(str(problem))}", soft_wrap=True)


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

    from pipelines.streaming.checkpoint.describe import start_in_words

    seen = verdict.inspection
    console.print(f"[bold]{escape(seen.path)}[/]", soft_wrap=True)
    console.print(f"Next start: {escape(start_in_words(seen.next_start))}", soft_wrap=True)
    for finding in verdict.findings:
        colour = _COLOURS[finding.severity]
        where = f" {escape(finding.where)}" if finding.where else ""
        console.print(f"[{colour}]{finding.severity}[/] [bold]{finding.code}[/]{where}", soft_wrap=True)
        console.print(f"    {escape(finding.what)}", soft_wrap=True)
        if finding.fix:
            console.print(f"    Fix: {escape(finding.fix)}", soft_wrap=True)
    errors = sum(finding.severity == "error" for finding in verdict.findings)
    how = "what a start needs" if verdict.level == "quick" else "every file"
    console.print(f"[green]Sound[/] ({how} was read)." if verdict.sound else f"[red]{errors} errors[/].")


def _versions(versions: Sequence[int]) -> str:
    return ", ".join(f"v{version}" for version in versions) or "unknown"


def _batch(batch: int | None) -> str:
    return "no batch" if batch is None else f"batch {batch}"


def _moment(milliseconds: int | None) -> str:
    from pipelines.streaming.checkpoint.describe import time_in_words

    return "" if milliseconds is None else time_in_words(milliseconds)


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

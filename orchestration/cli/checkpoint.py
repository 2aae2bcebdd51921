"""`tidemill checkpoint`: look into checkpoints, judge and compare them, without a JVM."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.options import COULD_NOT_LOOK, SCHEMA_VERSION, WRONG, AsJson, LakeFolder, TargetName

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.streaming.checkpoint import BatchHistory, Difference, Inspection, OperatorView, Verdict
    from pipelines.streaming.lake import Lake
    from pipelines.streaming.run.results import BatchRecord
    from pipelines.streaming.stream import Stream

app = typer.Typer(help="Look into checkpoints, judge and compare them.", no_args_is_help=True)

Which = Annotated[
    str,
    typer.Argument(
        metavar="PATH|SELECTION",
        help="A checkpoint's folder, or a selection of streams such as ads/impressions.",
        show_default=False,
    ),
]

_PIPE_WIDTH = 240
_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}


@dataclass(frozen=True, slots=True)
class Subject:
    """A checkpoint that a command means.

    Attributes:
        path: Its folder.
        stream: The stream it belongs to, when it was named by a selection.
        generation: That stream's active generation.
        lake: The lake it lies in.
    """

    path: str
    stream: "Stream | None" = None
    generation: int | None = None
    lake: "Lake | None" = None

    @property
    def sink_batch(self) -> int | None:
        """The newest batch of this query in the stream's table; None where no table says."""
        if self.stream is None or self.lake is None:
            return None
        from pipelines.streaming.checkpoint import CheckpointFormatError, read_tail
        from pipelines.streaming.delta_log import open_table

        table = open_table(self.lake.table(self.stream.name))
        try:
            query_id = read_tail(self.path).query_id
        except CheckpointFormatError:
            return None
        return None if table is None or query_id is None else table.transaction_version(query_id)

    def ledger(self) -> "Mapping[int, BatchRecord]":
        """The ledger's line of each batch of this generation."""
        if self.stream is None or self.lake is None:
            return {}
        from pipelines.streaming.run.ledger import lines

        return {
            line.batch_id: line
            for line in lines(self.lake, self.stream.name)
            if line.generation == self.generation
        }


@app.command()
def inspect(
    which: Which, *, target: TargetName = None, lake: LakeFolder = None, as_json: AsJson = False
) -> None:
    """What is in a checkpoint and what the next start will do. Exit status: 0, or 2 for no checkpoint."""
    from pipelines.streaming.checkpoint import inspect as look
    from pipelines.streaming.checkpoint.document import inspect_document

    found = [look(subject.path) for subject in subjects(which, target, lake)]
    if as_json:
        _print_json([inspect_document(seen) for seen in found])
        return
    console = _console()
    for seen in found:
        _show_inspection(console, seen)


@app.command()
def verify(
    which: Which,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Only what a start needs.")] = False,
    target: TargetName = None,
    lake: LakeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Whether the next start will work. Exit status: 0 sound, 1 an error was found, 2 no checkpoint."""
    from pipelines.streaming.checkpoint.document import verify_document

    found = [_verified(subject, quick=quick) for subject in subjects(which, target, lake)]
    if as_json:
        _print_json([verify_document(verdict) for verdict in found])
    else:
        console = _console()
        for verdict in found:
            _show_verdict(console, verdict)
    if not all(verdict.sound for verdict in found):
        raise typer.Exit(WRONG)


@app.command()
def history(
    which: Which,
    *,
    last: Annotated[int | None, typer.Option("--last", min=1, help="Only the newest N batches.")] = None,
    target: TargetName = None,
    lake: LakeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Batch by batch: when, which offsets, which watermark; rows and seconds where a ledger tells them."""
    from pipelines.streaming.checkpoint import history as batches_of
    from pipelines.streaming.checkpoint.document import history_document

    subject = _one(which, target, lake)
    batches, ledger = batches_of(subject.path, last=last), subject.ledger()
    if as_json:
        document = history_document(subject.path, batches)
        for each in document["batches"]:
            each.update(_told(ledger.get(each["batch_id"])))
        _print_json([document])
    else:
        _show_history(_console(), batches, ledger)


@app.command()
def diff(
    a: Which, b: Which, *, target: TargetName = None, lake: LakeFolder = None, as_json: AsJson = False
) -> None:
    """What differs between two checkpoints. Exit status: 0 the same, 1 different, 2 no checkpoint."""
    from pipelines.streaming.checkpoint import diff as differences_of
    from pipelines.streaming.checkpoint import inspect as look
    from pipelines.streaming.checkpoint.document import diff_document

    first, second = (look(_one(which, target, lake).path) for which in (a, b))
    found = differences_of(first, second)
    if as_json:
        _print_json([diff_document(first, second, found)])
    else:
        _show_differences(_console(), found)
    if found:
        raise typer.Exit(WRONG)


def subjects(which: str, target: str | None, lake: Path | None) -> list[Subject]:
    """The checkpoints that an argument means: a folder that is there, else the streams of a selection.

    Exits with status 2, after a line on stderr, when it means no checkpoint.
    """
    from pipelines.streaming.checkpoint import NotACheckpointError
    from pipelines.streaming.checkpoint.tail import opened

    path = which.removeprefix("file://") if which.startswith("file:///") else which.removeprefix("file:")
    if Path(path).expanduser().exists() or which.startswith(("/", ".", "~", "file:")):
        found = [Subject(path=which)]
    else:
        found = _selected(which, target, lake)
    try:
        for subject in found:
            opened(subject.path)
    except NotACheckpointError as error:
        typer.secho(f"tidemill: {error}", err=True, fg=typer.colors.RED)
        raise typer.Exit(COULD_NOT_LOOK) from None
    return found


def _selected(which: str, target: str | None, lake: Path | None) -> list[Subject]:
    """The active checkpoints of the selected streams; streams that never ran have none."""
    from pipelines.streaming.run.manifest import read_manifest
    from pipelines.streaming.selection import select
    from resources.targets import resolve

    resolved = resolve(target, lake=lake)
    found = []
    for stream in select(resolved.streams(), [which]):
        manifest = read_manifest(resolved.lake, stream.name)
        if manifest is not None:
            number = manifest.active.number
            place = resolved.lake.checkpoint(stream.name, number)
            found.append(Subject(str(place), stream, number, resolved.lake))
    if not found:
        typer.secho(
            f"tidemill: {which} is no folder, and no stream of that name has run yet in "
            f"{resolved.lake.root}. Nothing was changed.",
            err=True,
            fg=typer.colors.RED,
        )
        raise typer.Exit(COULD_NOT_LOOK)
    return found


def _one(which: str, target: str | None, lake: Path | None) -> Subject:
    found = subjects(which, target, lake)
    if len(found) > 1:
        typer.secho(
            f"tidemill: {which} means {len(found)} checkpoints; name one.", err=True, fg=typer.colors.RED
        )
        raise typer.Exit(COULD_NOT_LOOK)
    return found[0]


def _verified(subject: Subject, *, quick: bool) -> "Verdict":
    from pipelines.streaming.checkpoint import verify as judge

    if quick:
        return judge(subject.path, level="quick", sink_batch=subject.sink_batch)
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(subject.path, total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return judge(subject.path, level="full", on_progress=progress, sink_batch=subject.sink_batch)


def _print_json(documents: Sequence[dict[str, Any]]) -> None:
    """One document as it is; several as a list in an object."""
    whole = (
        documents[0]
        if len(documents) == 1
        else {
            "schema_version": SCHEMA_VERSION,
            "checkpoints": list(documents),
        }
    )
    typer.echo(json.dumps(whole))


def _console() -> "Console":
    """Tables fold to the terminal; in a file or a pipe they keep their lines whole."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_WIDTH
    return console


def _show_inspection(console: "Console", seen: "Inspection") -> None:
    from rich.markup import escape
    from rich.table import Table

    from pipelines.streaming.checkpoint.words import offset_in_words, start_in_words, time_in_words

    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    watermark = "unknown" if seen.watermark_ms is None else time_in_words(seen.watermark_ms)
    rows = {
        "Checkpoint": seen.path,
        "Query": seen.query_id or "unknown",
        "Formats": f"offset log {_versions(seen.offset_log_versions)}, "
        f"commit log {_versions(seen.commit_log_versions)}",
        "Planned": _batch(seen.latest_offset_batch),
        "Committed": _batch(seen.latest_committed_batch),
        "Watermark": watermark,
        "Next start": start_in_words(seen.next_start),
    }
    for name, value in rows.items():
        facts.add_row(name, escape(value))
    console.print(facts)
    if seen.sources:
        console.print()
        sources = _table("Source", "Kind", "Read up to")
        for source in seen.sources:
            sources.add_row(escape(source.key), source.kind, escape(offset_in_words(source)))
        console.print(sources)
    if seen.operators:
        console.print()
        operators = _table("Operator", "Stores", "Partitions", "Provider", "Version", "Kept", "Files", "Size")
        for view in seen.operators:
            operators.add_row(*(escape(cell) for cell in _operator_cells(view)))
        console.print(operators)
    if seen.conf:
        console.print()
        pinned = _table("Pinned setting", "Value")
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

    from pipelines.streaming.checkpoint.words import start_in_words

    seen = verdict.inspection
    console.print(f"[bold]{escape(seen.path)}[/]", soft_wrap=True)
    console.print(f"Next start: {escape(start_in_words(seen.next_start))}", soft_wrap=True)
    for finding in verdict.findings:
        colour = _COLOURS[finding.severity]
        where = f" {escape(finding.where)}" if finding.where else ""
        console.print(f"[{colour}]{finding.severity}[/] [bold]{finding.code}[/]{where}", soft_wrap=True)
        console.print(f"    {escape(finding.what)}", soft_wrap=True)
        if finding.mend:
            console.print(f"    Mend: {escape(finding.mend)}", soft_wrap=True)
    errors = sum(finding.severity == "error" for finding in verdict.findings)
    how = "what a start needs" if verdict.level == "quick" else "every file"
    console.print(f"[green]Sound[/] ({how} was read)." if verdict.sound else f"[red]{errors} errors[/].")


def _show_history(
    console: "Console", batches: "Sequence[BatchHistory]", ledger: "Mapping[int, BatchRecord]"
) -> None:
    from rich.markup import escape

    from pipelines.streaming.checkpoint.words import time_in_words

    table = _table("Batch", "Planned", "Watermark", "Source", "From", "To", "Rows", "Seconds")
    for batch in batches:
        told = _told(ledger.get(batch.batch_id))
        name = str(batch.batch_id) if batch.committed else f"{batch.batch_id} (not committed)"
        first = (
            name,
            _moment(batch.planned_ms),
            "" if batch.watermark_ms is None else time_in_words(batch.watermark_ms),
        )
        last = ("" if told["rows_read"] is None else f"{told['rows_read']:,}", _seconds(told["seconds"]))
        if batch.problem is not None:
            table.add_row(*first, "", "", escape(str(batch.problem)), *last)
        for number, source in enumerate(batch.sources):
            start = source.start.raw if source.start else None
            middle = (escape(source.end.key), escape(start or "-"), escape(source.end.raw or "-"))
            table.add_row(
                *(first if number == 0 else ("", "", "")), *middle, *(last if number == 0 else ("", ""))
            )
    console.print(table)


def _told(record: "BatchRecord | None") -> dict[str, Any]:
    """What the ledger says of a batch."""
    total = None if record is None else record.milliseconds.get("triggerExecution")
    return {
        "rows_read": None if record is None else record.rows_read,
        "rows_written": None if record is None else record.rows_written,
        "seconds": None if total is None else total / 1000,
    }


def _show_differences(console: "Console", differences: "Sequence[Difference]") -> None:
    from rich.markup import escape

    if not differences:
        console.print("No difference.")
        return
    table = _table("What", "Name", "A", "B")
    for each in differences:
        values = (json.dumps(value) if value is not None else "-" for value in (each.a, each.b))
        table.add_row(each.what, escape(each.name), *(escape(value) for value in values))
    console.print(table)


def _table(*columns: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _versions(versions: Sequence[int]) -> str:
    return ", ".join(f"v{version}" for version in versions) or "unknown"


def _batch(batch: int | None) -> str:
    return "no batch" if batch is None else f"batch {batch}"


def _moment(milliseconds: int | None) -> str:
    from pipelines.streaming.checkpoint.words import time_in_words

    return "" if milliseconds is None else time_in_words(milliseconds)


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f}"


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:  # noqa: PLR2004 -- SI units
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"

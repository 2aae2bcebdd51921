"""`tidemill checkpoint`: look into checkpoints, judge and compare them, without a JVM."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.checkpoint_refs import CheckpointRef, one_subject, subjects
from orchestration.cli.checkpoint_tables import (
    show_differences,
    show_history,
    show_inspections,
    show_verdicts,
)
from orchestration.cli.output import EXIT_PROBLEM, print_json
from orchestration.cli.target_flags import TargetFlags, target_flags

if TYPE_CHECKING:
    from pipelines.streaming.checkpoint import Verdict
    from pipelines.streaming.records import BatchRecord

app = typer.Typer(help="Inspect, verify and compare checkpoints.", no_args_is_help=True, add_completion=False)

Which = Annotated[
    str,
    typer.Argument(
        metavar="PATH|SELECTION",
        help="A checkpoint's folder, or a selection of streams such as ads/impressions.",
        show_default=False,
    ),
]


@app.command()
@target_flags
def inspect(which: Which, flags: TargetFlags) -> None:
    """What is in a checkpoint and what the next start will do. Exit status: 0, or 2 for no checkpoint."""
    from pipelines.streaming.checkpoint import inspect as look
    from pipelines.streaming.checkpoint.document import inspect_document

    meant = subjects(which, flags)
    found = [look(subject.path) for subject in meant]
    if flags.as_json:
        _print_each(meant, [inspect_document(seen) for seen in found])
    else:
        show_inspections(found)


@app.command()
@target_flags
def verify(
    which: Which,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Only what a start needs.")] = False,
    flags: TargetFlags,
) -> None:
    """Whether the next start will work. Exit status: 0 sound, 1 an error was found, 2 no checkpoint."""
    from pipelines.streaming.checkpoint.document import verify_document

    meant = subjects(which, flags)
    found = [_verified(subject, quick=quick) for subject in meant]
    if flags.as_json:
        _print_each(meant, [verify_document(verdict) for verdict in found])
    else:
        show_verdicts(found)
    if not all(verdict.sound for verdict in found):
        raise typer.Exit(EXIT_PROBLEM)


@app.command()
@target_flags
def history(
    which: Which,
    *,
    last: Annotated[int | None, typer.Option("--last", min=1, help="Only the newest N batches.")] = None,
    flags: TargetFlags,
) -> None:
    """Batch by batch: when, which offsets, which watermark; rows and seconds where a ledger tells them."""
    from pipelines.streaming.checkpoint import history as batches_of
    from pipelines.streaming.checkpoint.document import history_document

    subject = one_subject(which, flags)
    batches, ledger = batches_of(subject.path, last=last), subject.ledger()
    told = [_told(ledger.get(batch.batch_id)) for batch in batches]
    if flags.as_json:
        document = history_document(subject.path, batches)
        for batch, of_ledger in zip(document["batches"], told, strict=True):
            batch.update(of_ledger)
        _print_each([subject], [document])
    else:
        show_history(batches, told)


@app.command()
@target_flags
def diff(a: Which, b: Which, flags: TargetFlags) -> None:
    """What differs between two checkpoints. Exit status: 0 the same, 1 different, 2 no checkpoint."""
    from pipelines.streaming.checkpoint import diff as differences_of
    from pipelines.streaming.checkpoint import inspect as look
    from pipelines.streaming.checkpoint.document import diff_document

    meant = [one_subject(which, flags) for which in (a, b)]
    first, second = (look(subject.path) for subject in meant)
    found = differences_of(first, second)
    if flags.as_json:
        target_name = meant[0].identity["target"] or meant[1].identity["target"]
        print_json(target=target_name, **diff_document(first, second, found))
    else:
        show_differences(found)
    if found:
        raise typer.Exit(EXIT_PROBLEM)


def _verified(subject: CheckpointRef, *, quick: bool) -> "Verdict":
    from pipelines.streaming.checkpoint import verify as judge

    if quick:
        return judge(subject.path, level="quick", sink_batch=subject.sink_batch)
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    # Without a terminal the bar would leave an empty line behind.
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(subject.path, total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return judge(subject.path, level="full", on_progress=progress, sink_batch=subject.sink_batch)


def _told(record: "BatchRecord | None") -> dict[str, Any]:
    """What the ledger says of a batch."""
    total = None if record is None else record.milliseconds.get("triggerExecution")
    return {
        "rows_read": None if record is None else record.rows_read,
        "rows_written": None if record is None else record.rows_written,
        "seconds": None if total is None else total / 1000,
    }


def _print_each(meant: Sequence[CheckpointRef], documents: Sequence[dict[str, Any]]) -> None:
    """Each checkpoint's document with whose it is: one as it is, several as a list in an object."""
    each = [{**subject.identity, **document} for subject, document in zip(meant, documents, strict=True)]
    if len(each) == 1:
        print_json(**each[0])
    else:
        print_json(checkpoints=each)

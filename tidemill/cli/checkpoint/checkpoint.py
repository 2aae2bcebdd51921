"""`tidemill checkpoint`: inspect, verify and compare checkpoints without a JVM."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.checkpoint.refs import CheckpointRef, checkpoint_refs, one_checkpoint_ref
from tidemill.cli.checkpoint.tables import show_differences, show_history, show_inspections, show_verdicts
from tidemill.cli.shared.output import EXIT_PROBLEM, print_json, progress_console
from tidemill.cli.shared.target_flags import TargetFlags, target_flags

if TYPE_CHECKING:
    from tidemill.checkpoint.verify import Verdict
    from tidemill.records.batch import BatchRecord

app = typer.Typer(help="Inspect, verify and compare checkpoints.", no_args_is_help=True, add_completion=False)

Which = Annotated[
    str,
    typer.Argument(
        metavar="PATH|SELECTION",
        help="The folder of a checkpoint, or a selection of streams such as ads/impressions.",
        show_default=False,
    ),
]


@app.command()
@target_flags
def inspect(which: Which, flags: TargetFlags) -> None:
    """Show the contents of a checkpoint and what the next start does. Exit status: 0, or 2 for no checkpoint."""
    from tidemill.checkpoint import inspect as inspect_checkpoint
    from tidemill.checkpoint.document import inspect_document

    refs = checkpoint_refs(which, flags)
    inspections = [inspect_checkpoint(ref.checkpoint, ref.recognize) for ref in refs]
    if flags.as_json:
        _print_documents(refs, [inspect_document(inspection) for inspection in inspections])
    else:
        show_inspections(inspections)


@app.command()
@target_flags
def verify(
    which: Which,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Check only what a start needs.")] = False,
    flags: TargetFlags,
) -> None:
    """Check that the next start works. Exit status: 0 if it does, 1 for an error, 2 for no checkpoint."""
    from tidemill.checkpoint.verify.document import verify_document

    refs = checkpoint_refs(which, flags)
    verdicts = [_verified(ref, quick=quick) for ref in refs]
    if flags.as_json:
        _print_documents(refs, [verify_document(verdict) for verdict in verdicts])
    else:
        show_verdicts(verdicts)
    if not all(verdict.sound for verdict in verdicts):
        raise typer.Exit(EXIT_PROBLEM)


@app.command()
@target_flags
def history(
    which: Which,
    *,
    last: Annotated[int | None, typer.Option("--last", min=1, help="Show only the newest N batches.")] = None,
    flags: TargetFlags,
) -> None:
    """Show each batch: its time, offsets and watermark, and its rows and seconds if a ledger has them."""
    from tidemill.checkpoint import history as read_history
    from tidemill.checkpoint.document import history_document

    ref = one_checkpoint_ref(which, flags)
    batches, ledger = read_history(ref.checkpoint, last=last), ref.ledger()
    measures = [_measures(ledger.get(batch.batch_id)) for batch in batches]
    if flags.as_json:
        document = history_document(str(ref.checkpoint), batches, ref.recognize)
        for batch, measure in zip(document["batches"], measures, strict=True):
            batch.update(measure)
        _print_documents([ref], [document])
    else:
        show_history(batches, measures)


@app.command()
@target_flags
def diff(a: Which, b: Which, flags: TargetFlags) -> None:
    """Show the differences between two checkpoints. Exit status: 0 for none, 1 for some, 2 for no checkpoint."""
    from tidemill.checkpoint import diff as find_differences
    from tidemill.checkpoint import inspect as inspect_checkpoint
    from tidemill.checkpoint.document import diff_document

    refs = [one_checkpoint_ref(which, flags) for which in (a, b)]
    first, second = (inspect_checkpoint(ref.checkpoint, ref.recognize) for ref in refs)
    differences = find_differences(first, second)
    if flags.as_json:
        target_name = refs[0].identity["target"] or refs[1].identity["target"]
        print_json(target=target_name, **diff_document(first, second, differences))
    else:
        show_differences(differences)
    if differences:
        raise typer.Exit(EXIT_PROBLEM)


def _verified(ref: CheckpointRef, *, quick: bool) -> "Verdict":
    from tidemill.checkpoint.verify import verify as verify_checkpoint

    if quick:
        return verify_checkpoint(
            ref.checkpoint, level="quick", recognize=ref.recognize, sink_batch=ref.sink_batch
        )
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    console = progress_console()
    # Without a terminal the bar would leave an empty line behind.
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(str(ref.checkpoint), total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return verify_checkpoint(
            ref.checkpoint,
            level="full",
            recognize=ref.recognize,
            on_progress=progress,
            sink_batch=ref.sink_batch,
        )


def _measures(record: "BatchRecord | None") -> dict[str, Any]:
    """Return the measures of a batch in the ledger."""
    total = None if record is None else record.milliseconds.get("triggerExecution")
    return {
        "rows_read": None if record is None else record.rows_read,
        "rows_written": None if record is None else record.rows_written,
        "observed": None if record is None else record.observed,
        "seconds": None if total is None else total / 1000,
    }


def _print_documents(refs: Sequence[CheckpointRef], documents: Sequence[dict[str, Any]]) -> None:
    """Print each checkpoint's document with its stream: a single one as it is, several as a list in an object."""
    identified = [{**ref.identity, **document} for ref, document in zip(refs, documents, strict=True)]
    if len(identified) == 1:
        print_json(**identified[0])
    else:
        print_json(checkpoints=identified)

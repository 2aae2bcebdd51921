"""`tidemill run`: the streams that have something to do, and what became of each."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from orchestration.cli.options import (
    INTERRUPTED,
    WRONG,
    AsJson,
    Exclude,
    Kafka,
    LakeFolder,
    Landing,
    Selection,
    TargetName,
    print_json,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipelines.streaming.run.results import StreamResult
    from pipelines.streaming.stream import Stream
    from resources.targets import Target

app = typer.Typer()

_COLOURS = {
    "updated": "green",
    "idle": "bright_black",
    "failed": "red",
    "skipped": "yellow",
    "canceled": "yellow",
}


@app.command()
def run(
    selection: Selection = None,
    *,
    exclude: Exclude = None,
    target: TargetName = None,
    lake: LakeFolder = None,
    landing: Landing = None,
    kafka: Kafka = None,
    parallel: Annotated[
        int | None, typer.Option(min=1, help="Streams side by side. Default: one a core, at most 4.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the selected streams that have something to do, once, in the order of their dependencies.

    Exit status: 0 fine, 1 a stream failed, 2 nothing could be looked at, 130 interrupted.
    """
    from pipelines.streaming.selection import select
    from resources.targets import resolve

    resolved = resolve(target, lake=lake, landing=landing, kafka=kafka)
    streams = select(resolved.streams(), selection or [], exclude or [])
    run_id = new_run_id()
    results, interrupted = run_streams(resolved, streams, run_id=run_id, parallel=parallel, quiet=as_json)
    if as_json:
        print_json(resolved.name, run_id=run_id, streams=[as_document(result) for result in results])
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if any(result.outcome in ("failed", "skipped") for result in results):
        raise typer.Exit(WRONG)


def new_run_id() -> str:
    """A run's id: when it began, and a part that no other run has."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"


def run_streams(
    target: "Target", streams: "Sequence[Stream]", *, run_id: str, parallel: int | None, quiet: bool
) -> "tuple[list[StreamResult], bool]":
    """Runs streams and shows each result as it ends; also whether the run was interrupted."""
    from rich.console import Console

    from pipelines.streaming.run.graph import Run
    from resources.engine import Engine

    console = Console(stderr=True, quiet=quiet, highlight=False)
    engine = Engine(target.spark)
    running = Run(streams, places=target, sessions=engine, run_id=run_id, max_parallel=parallel)
    width = max((len(str(stream.name)) for stream in streams), default=0)
    shown = 0
    interrupted = False
    try:
        with console.status("looking at what waits ...") as status:
            for result in running.results():
                shown += 1
                console.print(line(result, width), soft_wrap=True)
                status.update(f"{shown} of {len(streams)} streams done ...")
    except KeyboardInterrupt:
        interrupted = True
        for result in running.finished[shown:]:
            console.print(line(result, width), soft_wrap=True)
    finally:
        engine.stop()
    return running.finished, interrupted


def line(result: "StreamResult", width: int) -> str:
    """One result as a line for people."""
    head = f"[{_COLOURS[result.outcome]}]{result.outcome:>8}[/]  {result.stream!s:<{width}}"
    if result.error is not None:
        return f"{head}  {_plain(str(result.error))}"
    if result.outcome != "updated":
        return f"{head}  {result.reason}"
    parts = [f"{result.total('rows_read'):,} read", f"{result.total('rows_written'):,} written"]
    for count, what in (
        (result.total("rows_quarantined"), "quarantined"),
        (result.total("rows_dropped"), "dropped"),
    ):
        if count:
            parts.append(f"{count:,} {what}")
    if result.late.count:
        parts.append(f"{result.late.count:,} late {result.late.unit}")
    return f"{head}  {', '.join(parts)}, {len(result.batches)} batches, {result.seconds:.1f} s"


def _plain(text: str) -> str:
    """Text that rich prints as it is."""
    return text.replace("[", "\\[")


def as_document(result: "StreamResult") -> dict[str, Any]:
    """One result as `run --json` prints it."""
    from pipelines.streaming.run.ledger import iso

    error = result.error
    return {
        "stream": str(result.stream),
        "outcome": result.outcome,
        "batches": len(result.batches),
        "rows_read": result.total("rows_read"),
        "rows_written": result.total("rows_written"),
        "rows_quarantined": result.total("rows_quarantined"),
        "rows_dropped": result.total("rows_dropped"),
        "late": {"count": result.late.count, "unit": result.late.unit},
        "watermark": None if result.watermark_ms is None else iso(result.watermark_ms),
        "seconds": result.seconds,
        "table_version": result.table_version,
        "error": None
        if error is None
        else {
            "type": type(error).__name__,
            "transient": error.transient,
            "what": error.what,
            "lost": error.lost,
            "mend": error.mend,
            "class": error.error_class,
        },
    }

"""`tidemill run`: the streams that have something to do, and what became of each."""

from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from orchestration.cli.interrupt import interruptible, leave_interrupted
from orchestration.cli.options import (
    WRONG,
    AsJson,
    Exclude,
    Kafka,
    LakeFolder,
    Landing,
    Selection,
    TargetName,
    print_json,
    target_and_streams,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipelines.streaming.run.results import StreamResult
    from pipelines.streaming.stream import Stream
    from resources.target.resolve import ResolvedTarget

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

    Exit status: 0 fine, 1 a stream failed or was skipped, 2 nothing could be looked at, 130 interrupted.
    """
    resolved, streams = target_and_streams(
        selection, exclude, target=target, lake=lake, landing=landing, kafka=kafka
    )
    run_id = new_run_id()
    results, interrupted = run_streams(resolved, streams, run_id=run_id, parallel=parallel, quiet=as_json)
    try:
        if as_json:
            print_json(target=resolved.name, run_id=run_id, streams=[as_document(each) for each in results])
    finally:
        if interrupted:  # and perhaps the program that reads the pipe, too
            leave_interrupted()
    if any(result.outcome in ("failed", "skipped") for result in results):
        raise typer.Exit(WRONG)


def new_run_id() -> str:
    """A run's id: when it began, and a part that no other run has."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"


def run_streams(
    target: "ResolvedTarget", streams: "Sequence[Stream]", *, run_id: str, parallel: int | None, quiet: bool
) -> "tuple[list[StreamResult], bool]":
    """Runs streams and shows each result as it ends; also whether the run was interrupted.

    After an interrupt the streams that did not come to their end are canceled; Spark is left to end with the
    process.
    """
    from rich.console import Console

    from pipelines.streaming.run.pipeline_run import PipelineRun
    from resources.engine.engine import SparkEngine

    console = Console(stderr=True, quiet=quiet, highlight=False)
    engine = SparkEngine(target.spark)
    running = PipelineRun(streams, target=target, engine=engine, run_id=run_id, max_parallel=parallel)
    width = max((len(str(stream.name)) for stream in streams), default=0)
    shown = 0
    try:
        with (
            interruptible(),
            console.status("looking at what waits ...") as status,
            closing(running.iter_results()) as results,
        ):
            for result in results:
                console.print(line(result, width), soft_wrap=True)
                shown += 1
                status.update(f"{shown} of {len(streams)} streams done ...")
            engine.stop()
    except KeyboardInterrupt:
        ended = [*running.finished, *_canceled(streams, running.finished)]
        for result in ended[shown:]:
            console.print(line(result, width), soft_wrap=True)
        return ended, True
    return running.finished, False


def _canceled(streams: "Sequence[Stream]", ended: "Sequence[StreamResult]") -> "Iterator[StreamResult]":
    """The results of the streams that an interrupt kept from starting, or from ending in time."""
    from pipelines.streaming.errors import CanceledError
    from pipelines.streaming.run.failure import translated
    from pipelines.streaming.run.results import StreamResult

    known = {result.stream for result in ended}
    for stream in streams:
        if stream.name not in known:
            yield StreamResult(
                stream=stream.name, outcome="canceled", error=translated(CanceledError(), stream.name)
            )


def line(result: "StreamResult", width: int) -> str:
    """One result as a line for people."""
    from rich.markup import escape

    head = f"[{_COLOURS[result.outcome]}]{result.outcome:>8}[/]  {result.stream!s:<{width}}"
    if result.outcome == "canceled":
        done = f", {len(result.batches)} batches are committed" if result.batches else ""
        return f"{head}  the run was interrupted{done}"
    if result.error is not None:
        return f"{head}  {escape(str(result.error).removeprefix(f'{result.stream}: '))}"
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


def as_document(result: "StreamResult") -> dict[str, Any]:
    """One result as `run --json` prints it."""
    from pipelines.streaming.run.batch_record import iso

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
            "fix": error.fix,
            "class": error.error_class,
        },
    }

"""`tidemill run`: runs the streams that have work to do and prints each result."""

import math
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer
from typer.core import TyperCommand

from orchestration.cli.interrupt import exit_interrupted, interruptible
from orchestration.cli.output import EXIT_PROBLEM, print_json, progress_console
from orchestration.cli.target_flags import StreamFlags, target_flags
from pipelines.streaming.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pipelines.streaming.run.results import StreamResult
    from pipelines.streaming.stream import Stream
    from resources.target.resolve import ResolvedTarget

app = typer.Typer(add_completion=False)

_FOREVER = "forever"

_COLORS = {
    "updated": "green",
    "idle": "bright_black",
    "busy": "yellow",
    "failed": "red",
    "skipped": "yellow",
    "canceled": "yellow",
}


class _RunCommand(TyperCommand):
    """A command whose option `--wait` may have a value after `=`, and none otherwise, as in GNU's tools."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a `--wait` without a value the value that stands for no limit."""
        return super().parse_args(ctx, [f"--wait={_FOREVER}" if arg == "--wait" else arg for arg in args])


@app.command(cls=_RunCommand)
@target_flags
def run(
    *,
    parallel: Annotated[
        int | None,
        typer.Option(min=1, help="Streams that run at the same time. Default: one per core, at most 4."),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(
            metavar="[=DURATION]",
            help="Waits for runs that hold a selected stream, such as --wait or --wait=10m. A stream that is held "
            "afterwards is busy.",
        ),
    ] = None,
    flags: StreamFlags,
) -> None:
    """Run the selected streams that have work to do, in dependency order.

    A stream that another run holds is busy, which is no failure: that run does its work.

    Exit status: 0, 1 if a stream failed or was skipped, 2 if the settings are wrong, 130 if interrupted.
    """
    seconds = _wait_seconds(wait)
    target, streams = flags.select()
    run_id = new_run_id()
    if seconds:
        _wait(target, streams, seconds, quiet=flags.as_json)
    results, interrupted = run_streams(target, streams, run_id=run_id, parallel=parallel, quiet=flags.as_json)
    try:
        if flags.as_json:
            print_json(target=target.name, run_id=run_id, streams=[as_document(result) for result in results])
    finally:
        if interrupted:  # the program that reads the pipe may have been interrupted, too
            exit_interrupted()
    if any(result.outcome in ("failed", "skipped") for result in results):
        raise typer.Exit(EXIT_PROBLEM)


def _wait_seconds(wait: str | None) -> float:
    from pipelines.streaming.durations import flag_duration

    if wait is None:
        return 0.0
    return math.inf if wait == _FOREVER else flag_duration(wait, what="--wait").total_seconds()


def _wait(target: "ResolvedTarget", streams: "Sequence[Stream]", seconds: float, *, quiet: bool) -> None:
    """Wait for other runs of these streams, and show which."""
    from pipelines.streaming.run.waiting import wait_until_free

    with interruptible(), progress_console(quiet=quiet).status("") as progress:
        wait_until_free(
            streams,
            target.lake,
            seconds=seconds,
            on_wait=lambda stream, holder: progress.update(f"{stream.name}: waiting for {holder} ..."),
        )


def new_run_id() -> str:
    """Return a run id: the time of the start, and a random part."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"


def run_streams(
    target: "ResolvedTarget", streams: "Sequence[Stream]", *, run_id: str, parallel: int | None, quiet: bool
) -> "tuple[list[StreamResult], bool]":
    """Run streams and print each result when its stream ends.

    An interrupt cancels the streams that have not ended. Spark then ends with the process.

    Returns:
        The results, and whether the run was interrupted.
    """
    from pipelines.streaming.run.pipeline_run import PipelineRun
    from resources.engine.engine import SparkEngine

    console = progress_console(quiet=quiet)
    engine = SparkEngine(target.spark)
    pipeline_run = PipelineRun(streams, target=target, engine=engine, run_id=run_id, max_parallel=parallel)
    width = max((len(str(stream.name)) for stream in streams), default=0)
    printed = 0
    try:
        with (
            interruptible(),
            console.status("checking for work to do ...") as progress,
            closing(pipeline_run.iter_results()) as results,
        ):
            for result in results:
                _print_result(result, width, console)
                printed += 1
                progress.update(f"{printed} of {counted(len(streams), 'stream')} done ...")
            engine.stop()
    except KeyboardInterrupt:
        for result in pipeline_run.finished[printed:]:
            _print_result(result, width, console)
        return pipeline_run.finished, True
    return pipeline_run.finished, False


def _print_result(result: "StreamResult", width: int, console: "Console") -> None:
    from rich.markup import escape

    console.print(line(result, width), soft_wrap=True)
    for warning in result.warnings:
        console.print(f"[yellow] warning[/]  {result.stream!s:<{width}}  {escape(warning)}", soft_wrap=True)


def line(result: "StreamResult", width: int) -> str:
    """Return one result as a line for people, in rich's markup.

    Args:
        result: The result.
        width: The width of the column of streams.
    """
    from rich.markup import escape

    head = f"[{_COLORS[result.outcome]}]{result.outcome:>8}[/]  {result.stream!s:<{width}}"
    if result.outcome == "canceled":
        committed = f", {counted(len(result.batches), 'batch')} committed" if result.batches else ""
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
        parts.append(counted(result.late.count, f"late {result.late.unit.removesuffix('s')}"))
    return f"{head}  {', '.join(parts)}, {counted(len(result.batches), 'batch')}, {result.seconds:.1f} s"


def as_document(result: "StreamResult") -> dict[str, Any]:
    """Return one result as `run --json` prints it."""
    from pipelines.streaming.run.batch_record import iso

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
        "watermark": None if result.watermark_ms is None else iso(result.watermark_ms),
        "seconds": result.seconds,
        "table_version": result.table_version,
        "warnings": list(result.warnings),
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

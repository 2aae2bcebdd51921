"""`tidemill run`: runs the streams that have work to do and prints each result."""

import math
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer
from typer.core import TyperCommand

from tidemill.cli.run.check import COLORS, check_document
from tidemill.cli.shared.interrupt import exit_interrupted, interruptible
from tidemill.cli.shared.output import EXIT_PROBLEM, print_json, progress_console
from tidemill.cli.shared.target_flags import StreamFlags, target_flags
from tidemill.text.durations import iso_of
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from tidemill.checks.result import CheckResult
    from tidemill.definitions.stream import Stream
    from tidemill.run.execute.results import StreamResult
    from tidemill.target.resolve import ResolvedTarget
    from tidemill.text.names import StreamName

app = typer.Typer(add_completion=False)

_FOREVER = "forever"


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
        typer.Option(
            min=1,
            help="Streams that run at the same time. Default: that of the target, or one per core, at most 4.",
        ),
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

    A stream that another run holds is busy, which is no failure: that run does its work. The checks of the streams
    that ran are evaluated; those that fail are printed at the end and do not change the exit status.

    Exit status: 0, 1 if a stream failed or was skipped, 2 if the settings are wrong, 130 if interrupted.
    """
    seconds = _wait_seconds(wait)
    target, streams = flags.select()
    run_id = new_run_id()
    if seconds:
        _wait(target, streams, seconds, quiet=flags.as_json)
    finished = run_streams(target, streams, run_id=run_id, parallel=parallel, quiet=flags.as_json)
    try:
        if flags.as_json:
            from tidemill.cli.run.run import as_document

            documents = [
                as_document(result, finished.checks.get(result.stream)) for result in finished.results
            ]
            print_json(target=target.name, run_id=run_id, streams=documents)
    finally:
        if finished.interrupted:  # the program that reads the pipe may have been interrupted, too
            exit_interrupted()
    if any(result.outcome in ("failed", "skipped") for result in finished.results):
        raise typer.Exit(EXIT_PROBLEM)


def _wait_seconds(wait: str | None) -> float:
    from tidemill.text.durations import flag_duration

    if wait is None:
        return 0.0
    return math.inf if wait == _FOREVER else flag_duration(wait, field="--wait").total_seconds()


def _wait(target: "ResolvedTarget", streams: "Sequence[Stream]", seconds: float, *, quiet: bool) -> None:
    """Wait for other runs of these streams, and show which."""
    from tidemill.run.decide.waiting import wait_until_free

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


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that has ended.

    Attributes:
        checks: The results of the checks of the streams that did something.
        interrupted: Whether it was interrupted.
    """

    results: "list[StreamResult]"
    checks: "Mapping[StreamName, tuple[CheckResult, ...]]"
    interrupted: bool


def run_streams(
    target: "ResolvedTarget", streams: "Sequence[Stream]", *, run_id: str, parallel: int | None, quiet: bool
) -> Finished:
    """Run streams, and print each result when its stream ends and the checks that failed at the end.

    An interrupt cancels the streams that have not ended. Spark then ends with the process.
    """
    from tidemill.cli.run.run import print_failed_checks, print_result
    from tidemill.cli.shared.live_view import LiveView
    from tidemill.engines.engine import SparkEngine
    from tidemill.run.execute.pipeline_run import PipelineRun

    console = progress_console(quiet=quiet)
    engine = SparkEngine(target.spark)
    pipeline_run = PipelineRun(streams, target=target, engine=engine, run_id=run_id, max_parallel=parallel)
    view = LiveView(console, pipeline_run.live.streams)
    width = max((len(str(stream.name)) for stream in streams), default=0)
    known = {stream.name: stream for stream in target.streams()} | {s.name: s for s in streams}
    checks: dict[StreamName, tuple[CheckResult, ...]] = {}
    printed, interrupted = 0, False
    try:
        with (
            interruptible(),
            view,
            closing(pipeline_run.iter_results(on_wait=view.update)) as results,
        ):
            for result in results:
                print_result(result, width, console)
                printed += 1
                if result.outcome in ("updated", "failed"):
                    from tidemill.checks.evaluation import evaluate

                    checks[result.stream] = evaluate(
                        known[result.stream], target, datetime.now(UTC), result=result, streams=known
                    )
            engine.stop()
    except KeyboardInterrupt:
        interrupted = True
        for result in pipeline_run.finished[printed:]:
            print_result(result, width, console)
    print_failed_checks(checks, width, console)
    return Finished(pipeline_run.finished, checks, interrupted)


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

"""`tidemill run`: runs the streams that have work to do and prints each result."""

import math
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer
from typer.core import TyperCommand

from tidemill.cli.shared.interrupt import exit_interrupted, interruptible
from tidemill.cli.shared.output import EXIT_PROBLEM, print_json, progress_console
from tidemill.cli.shared.target_flags import StreamFlags, target_flags
from tidemill.definitions.options import Mode
from tidemill.text.durations import format_duration
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from tidemill.checks.result import CheckResult
    from tidemill.definitions.stream import Stream
    from tidemill.run.execute.follow import Follow
    from tidemill.run.execute.pipeline_run import PipelineRun
    from tidemill.run.execute.results import StreamResult
    from tidemill.target.resolve import ResolvedTarget
    from tidemill.text.names import StreamName

app = typer.Typer(add_completion=False)

_FOREVER = "forever"


# What an option has where its value, after `=`, is left out.
_IMPLIED = {"--wait": _FOREVER, "--follow": "0s"}


class _RunCommand(TyperCommand):
    """A command whose `--wait` and `--follow` may have a value after `=`, and none otherwise, as in GNU's tools."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give those without a value the one that is implied."""
        return super().parse_args(ctx, [f"{arg}={_IMPLIED[arg]}" if arg in _IMPLIED else arg for arg in args])


@app.command(cls=_RunCommand)
@target_flags
def run(
    *,
    parallel: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many streams run at the same time. Default: that of the target, or one per core, at most 4.",
        ),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(
            metavar="[=DURATION]",
            help="Wait until no other run holds a selected stream; --wait=10m waits for at most ten minutes. A "
            "stream that is still held is busy.",
        ),
    ] = None,
    follow: Annotated[
        str | None,
        typer.Option(
            metavar="[=INTERVAL]",
            help="Continue with new data until Ctrl-C. A batch starts when the previous one has ended, or every "
            "INTERVAL, such as --follow=30s.",
        ),
    ] = None,
    following_for: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="With --follow: end after this time, such as 8h."),
    ] = None,
    mode: Annotated[
        Mode,
        typer.Option(
            help="With --follow: how Spark runs the queries. All modes except micro-batch are for stateless streams "
            "from Kafka to Kafka, and write at least once."
        ),
    ] = "micro-batch",
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Read the whole backlog in one batch per stream, without the limits of the sources.",
        ),
    ] = False,
    flags: StreamFlags,
) -> None:
    """Run the selected streams that have work to do, in dependency order.

    A stream that another run holds is busy, which is not a failure: the other run does the work. The checks of the
    streams that ran are evaluated. Failed checks are printed at the end and do not change the exit status.

    Exit status: 0, 1 if a stream failed or was skipped, 2 if the settings are wrong, 130 if interrupted.
    """
    seconds = _wait_seconds(wait)
    following = _follow(follow, following_for, mode, once=once)
    target, streams = flags.select()
    if following is not None:
        from tidemill.run.execute.modes import check_mode

        check_mode(streams, following.mode, following.every)  # before it waits
    run_id = new_run_id()
    if seconds:
        _wait(target, streams, seconds, quiet=flags.as_json)
    finished = run_streams(
        target, streams, run_id=run_id, parallel=parallel, once=once, follow=following, quiet=flags.as_json
    )
    try:
        if flags.as_json:
            from tidemill.cli.run.results import as_document

            documents = [
                as_document(result, finished.checks.get(result.stream)) for result in finished.results
            ]
            print_json(target=target.name, run_id=run_id, streams=documents)
    finally:
        if finished.interrupted:  # the program that reads the pipe may have been interrupted, too
            exit_interrupted()
    if any(result.outcome in ("failed", "skipped") for result in finished.results):
        raise typer.Exit(EXIT_PROBLEM)


def _follow(follow: str | None, length: str | None, mode: Mode, *, once: bool) -> "Follow | None":
    """Return what the flags say; None for a run that ends with the data that waits."""
    from tidemill.errors import ConfigurationError
    from tidemill.run.execute.follow import Follow
    from tidemill.text.durations import flag_duration

    if follow is None and length is not None:
        raise ConfigurationError(
            "--for limits how long a run follows its sources, and this run ends when it has read the backlog.",
            fix=f"add --follow: tidemill run --follow --for {length}",
            code="arguments-conflict",
        )
    if follow is None and mode != "micro-batch":
        raise ConfigurationError(
            f"--mode {mode} is for a run that follows its sources, and this run ends when it has read the backlog.",
            fix=f"add --follow: tidemill run --follow --mode {mode}",
            code="arguments-conflict",
        )
    if follow is None:
        return None
    if once:
        raise ConfigurationError(
            "--once ends after one batch, and --follow does not end.",
            fix="leave one of them out.",
            code="arguments-conflict",
        )
    return Follow(
        every=flag_duration(follow, field="--follow"),
        length=None if length is None else flag_duration(length, field="--for"),
        mode=mode,
    )


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
    target: "ResolvedTarget",
    streams: "Sequence[Stream]",
    *,
    run_id: str,
    parallel: int | None,
    once: bool = False,
    follow: "Follow | None" = None,
    quiet: bool,
) -> Finished:
    """Run streams, and print each result when its stream ends and the checks that failed at the end.

    An interrupt cancels the streams that have not ended. Spark then ends with the process. While the run follows
    its sources, the first interrupt ends the streams after their batches in progress.
    """
    from tidemill.cli.run.results import print_failed_checks
    from tidemill.engines.engine import SparkEngine
    from tidemill.run.execute.pipeline_run import PipelineRun

    console = progress_console(quiet=quiet)
    engine = SparkEngine(target.spark)
    width = max((len(str(stream.name)) for stream in streams), default=0)
    known = {stream.name: stream for stream in [*target.streams(), *streams]}
    view = _RunView(target, known, console, width)
    catch_up = PipelineRun(
        streams, target=target, engine=engine, run_id=run_id, max_parallel=parallel, once=once
    )
    results = catch_up.finished
    interrupted = view.until_it_ends(catch_up)
    caught_up = [
        stream
        for stream in streams
        if any(result.stream == stream.name and result.outcome in ("updated", "idle") for result in results)
    ]
    if follow is not None and caught_up and not interrupted:
        endless = PipelineRun(caught_up, target=target, engine=engine, run_id=run_id, follow=follow)
        interrupted = view.until_it_ends(endless, follow)
        results = _joined(results, endless.finished)
    try:
        if not interrupted:
            with interruptible():
                engine.stop()
    except KeyboardInterrupt:
        interrupted = True
    print_failed_checks(view.checks, width, console)
    return Finished(results, view.checks, interrupted)


@dataclass(slots=True)
class _RunView:
    """Shows runs: each result when its stream ends, and in between how far the others are.

    Attributes:
        streams: The streams by name, with those that the checks of others need.
        width: The width of the column of streams.
        checks: The results of the checks of the streams that did something.
    """

    target: "ResolvedTarget"
    streams: "Mapping[StreamName, Stream]"
    console: "Console"
    width: int
    checks: "dict[StreamName, tuple[CheckResult, ...]]" = field(default_factory=dict)

    def until_it_ends(self, run: "PipelineRun", follow: "Follow | None" = None) -> bool:
        """Show a run until it ends, and return whether it was interrupted.

        Args:
            run: The run.
            follow: Ends it, where it follows its sources.
        """
        from tidemill.cli.run.results import print_result
        from tidemill.cli.shared.live_view import LiveView

        view = LiveView(self.console, run.live.streams)
        deadline = math.inf
        if follow is not None:
            self.console.print(_announcement(run.count, follow))
            if follow.length is not None:
                deadline = time.monotonic() + follow.length.total_seconds()

        def wait() -> None:
            view.update()
            if follow is not None and time.monotonic() >= deadline:
                follow.ended.set()

        def ask() -> None:
            assert follow is not None  # noqa: S101 - given to signals where it is there
            follow.ended.set()
            self.console.print("Stopping after the batches in progress. Ctrl-C again stops at once.")

        printed = 0
        try:
            with (
                interruptible(first=None if follow is None else ask),
                view,
                closing(run.iter_results(on_wait=wait)) as results,
            ):
                for result in results:
                    print_result(result, self.width, self.console)
                    printed += 1
                    self._check(result)
        except KeyboardInterrupt:
            for result in run.finished[printed:]:
                print_result(result, self.width, self.console)
            return True
        return False

    def _check(self, result: "StreamResult") -> None:
        if result.outcome not in ("updated", "failed"):
            return
        from tidemill.checks.evaluation import evaluate

        self.checks[result.stream] = evaluate(
            self.streams[result.stream], self.target, datetime.now(UTC), result=result, streams=self.streams
        )


def _announcement(count: int, follow: "Follow") -> str:
    every = f", with a batch every {format_duration(follow.every)}" if follow.every else ""
    if follow.mode != "micro-batch":
        every = f" in {follow.mode} mode"
    length = "" if follow.length is None else f" for {format_duration(follow.length)}"
    return f"Following the sources of {pluralize(count, 'stream')}{every}{length}. Ctrl-C ends it."


def _joined(first: "Sequence[StreamResult]", then: "Sequence[StreamResult]") -> "list[StreamResult]":
    """Return one result per stream of a run in two parts."""
    by_stream = {result.stream: result for result in then}
    return [
        result
        if (last := by_stream.get(result.stream)) is None
        else replace(
            last,
            outcome=result.outcome if last.outcome == "idle" else last.outcome,
            reason=result.reason if last.outcome == "idle" else last.reason,
            batches=(*result.batches, *last.batches),
            seconds=round(result.seconds + last.seconds, 3),
        )
        for result in first
    ]

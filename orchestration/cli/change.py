"""The commands that edit a stream's records: the plan first, then a question, then the change."""

import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.output import (
    EXIT_NOT_DONE,
    EXIT_PROBLEM,
    print_json,
    print_problem,
    progress_console,
)
from orchestration.cli.target_flags import StreamFlags, TargetFlags, selected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestration.cli.changes import ChangesFlags
    from pipelines.streaming.lifecycle import Change
    from pipelines.streaming.stream import Stream
    from resources.target.resolve import ResolvedTarget

StreamArgument = Annotated[str, typer.Argument(metavar="STREAM", help="The stream: ads/impressions.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFlags(TargetFlags):
    """The flags of a command that changes one stream of a target.

    Attributes:
        yes: Whether to apply the plan without a question.
        dry_run: Whether to print the plan only.
    """

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False

    def stream(self, name: str) -> "tuple[ResolvedTarget, Stream]":
        """Return the target and one of its streams.

        Raises:
            ConfigurationError: The name selects several streams or none.
        """
        from pipelines.streaming.errors import ConfigurationError

        target = self.resolve()
        streams = selected(target, [name])
        if len(streams) != 1:
            names = ", ".join(str(stream.name) for stream in streams)
            raise ConfigurationError(f"{name!r} selects {len(streams)} streams.", fix=f"name one of {names}.")
        return target, streams[0]


def change_stream(change: "Callable[..., Change]", flags: ChangeFlags) -> None:
    """Print a plan, ask, and apply it.

    Args:
        change: A function of `pipelines.streaming.lifecycle` that needs nothing more than `dry_run`.
        flags: Whether to ask, to apply, and how to print.
    """
    plan = change(dry_run=True)
    if not flags.as_json:
        _print(plan)
    if not flags.dry_run:
        confirm(flags)
    done = plan if flags.dry_run else change(dry_run=False)
    if flags.as_json:
        print_json(target=flags.resolve().name, **_document(done, changed=not flags.dry_run))
    elif not flags.dry_run:
        typer.echo("Done." + (f" Copies of what was replaced: {done.copies}" if done.copies else ""))


def change_with_spark(change: "Callable[..., Change]", target: "ResolvedTarget", flags: ChangeFlags) -> None:
    """Print a plan, ask, and apply it with Spark; a plan alone starts none.

    Args:
        change: A function of `pipelines.streaming.lifecycle` that needs nothing more than `engine` and `dry_run`.
        target: The target, whose Spark is used.
        flags: Whether to ask, to apply, and how to print.
    """
    from orchestration.cli.interrupt import exit_interrupted, interruptible
    from resources.engine.engine import SparkEngine

    engine = SparkEngine(target.spark)

    def applied(*, dry_run: bool) -> "Change":
        if dry_run:
            return change(engine=engine, dry_run=True)
        with progress_console(quiet=flags.as_json).status("working ..."):
            return change(engine=engine, dry_run=False)

    try:
        with interruptible():
            change_stream(applied, flags)
            engine.stop()
    except KeyboardInterrupt:
        exit_interrupted()


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionChangeFlags(StreamFlags):
    """The flags of a command that changes the selected streams of a target, one after another.

    Attributes:
        yes: Whether to apply the plans without a question.
        dry_run: Whether to print the plans only.
        downstream: Whether the streams that read the selected ones are changed as well.
    """

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False
    downstream: Annotated[
        bool, typer.Option("--downstream", help="Also the streams that read the selected ones.")
    ] = False

    def select(self) -> "tuple[ResolvedTarget, tuple[Stream, ...]]":
        """Return the target and the streams to change, in dependency order.

        Raises:
            ConfigurationError: Nothing is selected, or the selection matches no stream.
        """
        from pipelines.streaming.errors import ConfigurationError

        if not self.selection:
            raise ConfigurationError("Name the streams, such as ads/impressions, or a pipeline.")
        resolved = self.resolve()
        names = [
            f"{name}+" if self.downstream and not name.endswith("+") else name for name in self.selection
        ]
        return resolved, selected(resolved, names, self.exclude or ())


def change_selection(
    change: "Callable[..., Change]",
    target: "ResolvedTarget",
    streams: "Sequence[Stream]",
    flags: SelectionChangeFlags,
) -> None:
    """Print a plan per stream, ask once, and apply the plans in order, with Spark.

    Args:
        change: A function of `pipelines.streaming.lifecycle` that takes the stream, and `engine`, `live` and
            `dry_run` by name.
        target: The target, whose Spark is used.
        streams: The streams, in dependency order.
        flags: Whether to ask, to apply, and how to print.
    """
    from orchestration.cli.interrupt import exit_interrupted, interruptible
    from orchestration.cli.live_view import LiveView
    from pipelines.streaming.run.live import Live
    from resources.engine.engine import SparkEngine

    engine, live = SparkEngine(target.spark), Live()
    changes = []
    try:
        with interruptible():
            for stream in streams:
                changes.append(change(stream, engine=engine, live=live, dry_run=True))
                if not flags.as_json:
                    _print(changes[-1])
            if not flags.dry_run:
                confirm(flags)
                console = progress_console(quiet=flags.as_json)
                for number, stream in enumerate(streams):
                    with LiveView(console, live.streams) as view:
                        work = partial(change, stream, engine=engine, live=live, dry_run=False)
                        changes[number] = view.until(work)
                    console.print(f"[green]    done[/]  {stream.name}", soft_wrap=True)
                engine.stop()
    except KeyboardInterrupt:
        exit_interrupted()
    if flags.as_json:
        documents = [_document(done, changed=not flags.dry_run) for done in changes]
        print_json(target=target.name, streams=documents)


def confirm(flags: "ChangeFlags | SelectionChangeFlags | ChangesFlags") -> None:
    """Ask whether to go on, unless --yes was given.

    Raises:
        Exit: The answer is no, or nobody can be asked.
    """
    if flags.yes:
        return
    if flags.as_json or not sys.stdin.isatty():
        print_problem("Nothing was changed. Fix: give --yes, or run the command in a terminal.")
        raise typer.Exit(EXIT_NOT_DONE)
    if not typer.confirm("Change it?", err=True):
        raise typer.Exit(EXIT_PROBLEM)


def _document(done: "Change", *, changed: bool) -> "dict[str, Any]":
    return {
        "stream": str(done.stream),
        "changed": changed,
        "what": done.what,
        "effects": list(done.effects),
        "copies": None if done.copies is None else str(done.copies),
    }


def _print(plan: "Change") -> None:
    typer.echo(f"{plan.stream}: {plan.what}")
    for effect in plan.effects:
        typer.echo(f"  - {effect}")

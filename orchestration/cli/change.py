"""The commands that change a stream: the plan first, then a question, then the change."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.options import COULD_NOT_LOOK, WRONG, print_json, target_and_streams

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipelines.streaming.lifecycle import Change
    from pipelines.streaming.stream import Stream
    from resources.target.resolve import ResolvedTarget

StreamArgument = Annotated[str, typer.Argument(metavar="STREAM", help="The stream: ads/impressions.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")]


def one_stream(
    name: str, target: str | None, lake: "Path | None", landing: "Path | None", kafka: str | None
) -> "tuple[ResolvedTarget, Stream]":
    """Return the target that the flags mean, and one of its streams.

    Raises:
        ConfigurationError: The name stands for several streams or for none.
    """
    from pipelines.streaming.errors import ConfigurationError

    resolved, streams = target_and_streams([name], target=target, lake=lake, landing=landing, kafka=kafka)
    if len(streams) != 1:
        names = ", ".join(str(stream.name) for stream in streams)
        raise ConfigurationError(f"{name!r} stands for {len(streams)} streams.", fix=f"name one of {names}.")
    return resolved, streams[0]


def change_stream(
    change: "Callable[..., Change]", *, target: str, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Print a plan, ask, and apply it.

    Args:
        change: A function of `pipelines.streaming.lifecycle` that needs nothing more than `dry_run`.
        target: The target's name.
        yes: Whether to apply it without a question.
        dry_run: Whether to print the plan only.
        as_json: Whether to print one JSON object.
    """
    plan = change(dry_run=True)
    if not as_json:
        _print(plan)
    if not dry_run and not yes:
        if as_json or not sys.stdin.isatty():
            typer.secho("Nothing was changed. Fix: give --yes, or run it in a terminal.", err=True)
            raise typer.Exit(COULD_NOT_LOOK)
        if not typer.confirm("Change it?", err=True):
            raise typer.Exit(WRONG)
    done = plan if dry_run else change(dry_run=False)
    if as_json:
        print_json(
            target=target,
            stream=str(done.stream),
            changed=not dry_run,
            what=done.what,
            effects=list(done.effects),
            copies=None if done.copies is None else str(done.copies),
        )
    elif not dry_run:
        typer.echo("Done." + (f" Copies of what was replaced: {done.copies}" if done.copies else ""))


def _print(plan: "Change") -> None:
    typer.echo(f"{plan.stream}: {plan.what}")
    for effect in plan.effects:
        typer.echo(f"  - {effect}")

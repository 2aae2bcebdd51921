"""The commands that edit a stream's records: the plan first, then a question, then the change."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.output import EXIT_NOT_DONE, EXIT_PROBLEM, print_json, print_problem
from orchestration.cli.target_flags import TargetFlags, selected

if TYPE_CHECKING:
    from collections.abc import Callable

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
    if not flags.dry_run and not flags.yes:
        if flags.as_json or not sys.stdin.isatty():
            print_problem("Nothing was changed. Fix: give --yes, or run the command in a terminal.")
            raise typer.Exit(EXIT_NOT_DONE)
        if not typer.confirm("Change it?", err=True):
            raise typer.Exit(EXIT_PROBLEM)
    done = plan if flags.dry_run else change(dry_run=False)
    if flags.as_json:
        print_json(
            target=flags.resolve().name,
            stream=str(done.stream),
            changed=not flags.dry_run,
            what=done.what,
            effects=list(done.effects),
            copies=None if done.copies is None else str(done.copies),
        )
    elif not flags.dry_run:
        typer.echo("Done." + (f" Copies of what was replaced: {done.copies}" if done.copies else ""))


def _print(plan: "Change") -> None:
    typer.echo(f"{plan.stream}: {plan.what}")
    for effect in plan.effects:
        typer.echo(f"  - {effect}")

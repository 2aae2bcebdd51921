"""The commands that edit a stream's records: the plan first, then a question, then the change."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.shared.confirmation import confirmed, spark_of
from tidemill.cli.shared.output import print_json, progress_console
from tidemill.cli.shared.target_flags import TargetFlags, selected

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidemill.definitions.stream import Stream
    from tidemill.operations import Change
    from tidemill.target.resolve import ResolvedTarget

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
        from tidemill.errors import ConfigurationError

        target = self.resolve()
        streams = selected(target, [name])
        if len(streams) != 1:
            names = ", ".join(str(stream.name) for stream in streams)
            raise ConfigurationError(f"{name!r} selects {len(streams)} streams.", fix=f"name one of {names}.")
        return target, streams[0]


def change_stream(change: "Callable[..., Change]", flags: ChangeFlags) -> None:
    """Print a plan, ask, and apply it.

    Args:
        change: A function of `tidemill.operations` that needs nothing more than `dry_run`.
        flags: Whether to ask, to apply, and how to print.
    """
    plan = change(dry_run=True)
    if not flags.as_json:
        print_plan(plan)
    done = change(dry_run=False) if confirmed(flags) else plan
    if flags.as_json:
        print_json(target=flags.resolve().name, **document(done, changed=not flags.dry_run))
    elif not flags.dry_run:
        copies = f"Copies of what was replaced: {done.copies}" if done.copies else ""
        typer.echo(" ".join(filter(None, ("Done.", done.outcome, copies))))


def change_with_spark(change: "Callable[..., Change]", target: "ResolvedTarget", flags: ChangeFlags) -> None:
    """Print a plan, ask, and apply it with Spark; a plan alone starts none.

    Args:
        change: A function of `tidemill.operations` that needs nothing more than `engine` and `dry_run`.
        target: The target, whose Spark is used.
        flags: Whether to ask, to apply, and how to print.
    """
    with spark_of(target) as engine:

        def applied(*, dry_run: bool) -> "Change":
            if dry_run:
                return change(engine=engine, dry_run=True)
            with progress_console(quiet=flags.as_json).status("working ..."):
                return change(engine=engine, dry_run=False)

        change_stream(applied, flags)


def document(done: "Change", *, changed: bool) -> "dict[str, Any]":
    """Return a change as JSON.

    Args:
        done: The change.
        changed: Whether it was applied.
    """
    return {
        "stream": str(done.stream),
        "changed": changed,
        "what": done.what,
        "effects": list(done.effects),
        "copies": None if done.copies is None else str(done.copies),
        "outcome": done.outcome or None,
    }


def print_plan(plan: "Change") -> None:
    """Print a plan for people."""
    typer.echo(f"{plan.stream}: {plan.what}")
    for effect in filter(None, (*plan.effects, plan.outcome)):
        typer.echo(f"  - {effect}")

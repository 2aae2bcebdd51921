"""The commands that change several streams: the plan of each first, then one question, then the changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import typer

from tidemill.cli.shared.change import document, print_plan
from tidemill.cli.shared.confirmation import confirmed, spark_of
from tidemill.cli.shared.output import EXIT_PROBLEM, print_json, progress_console
from tidemill.cli.shared.target_flags import StreamFlags, selected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidemill.definitions.stream import Stream
    from tidemill.operations import Change
    from tidemill.target.resolve import ResolvedTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesFlags(StreamFlags):
    """The flags of a command that changes the selected streams of a target.

    Attributes:
        yes: Whether to apply the plan without a question.
        dry_run: Whether to print the plan only.
    """

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFlags(ChangesFlags):
    """The flags of a command that replays the selected streams of a target.

    Attributes:
        downstream: Whether the streams that read the selected ones are replayed as well.
    """

    downstream: Annotated[
        bool, typer.Option("--downstream", help="Also the streams that read the selected ones.")
    ] = False

    def select(self) -> "tuple[ResolvedTarget, tuple[Stream, ...]]":
        """Return the target and the streams to replay, in dependency order.

        Raises:
            ConfigurationError: Nothing is selected, or the selection matches no stream.
        """
        from tidemill.errors import ConfigurationError

        if not self.selection:
            raise ConfigurationError("Name the streams, such as ads/impressions, or a pipeline.")
        resolved = self.resolve()
        names = [
            f"{name}+" if self.downstream and not name.endswith("+") else name for name in self.selection
        ]
        return resolved, selected(resolved, names, self.exclude or ())


class Plan(Protocol):
    """What a command would do to a stream, or has done."""

    @property
    def changes(self) -> bool:
        """Whether there is something to do."""


Planned = TypeVar("Planned", bound=Plan)


@contextmanager
def working(flags: ChangesFlags, what: str) -> Iterator[None]:
    """Show on a terminal what is done in the block."""
    with progress_console(quiet=flags.as_json).status(what):
        yield


def apply_plans(
    one: "Callable[..., Planned]",
    streams: "Sequence[Stream]",
    flags: ChangesFlags,
    *,
    show: "Callable[[Sequence[Planned]], None]",
    planning: str,
    applying: str,
) -> tuple[list[Planned], bool]:
    """Plan a change of each stream, print the plans, ask once, and apply those that change something.

    Args:
        one: Plans or does it for one stream; takes `dry_run` by name.
        streams: The streams.
        flags: Whether to ask, to apply, and how to print.
        show: Prints the plans for people.
        planning: What a terminal shows meanwhile.
        applying: What it shows while the plans are applied.

    Returns:
        The plans, or what was done, and whether anything was done.
    """
    with working(flags, planning):
        plans = [one(stream, dry_run=True) for stream in streams]
    if not flags.as_json:
        show(plans)
    if not (any(plan.changes for plan in plans) and confirmed(flags)):
        return plans, False
    with working(flags, applying):
        done = [one(stream) if plan.changes else plan for stream, plan in zip(streams, plans, strict=True)]
    return done, True


def replay(
    change: "Callable[..., Change]",
    target: "ResolvedTarget",
    streams: "Sequence[Stream]",
    flags: ReplayFlags,
) -> None:
    """Print a plan per stream, ask, compute the streams in order, and publish each.

    Without `--yes` the difference is shown, and asked about, before a stream is published.

    Args:
        change: A function of `tidemill.operations` that takes the stream, and `engine`, `live`, `dry_run` and
            `publish` by name.
        target: The target, whose Spark is used.
        streams: The streams, in dependency order.
        flags: Whether to ask, to apply, and how to print.
    """
    from tidemill.cli.shared.live_view import LiveView
    from tidemill.run.execute.progress import Live

    live, changes = Live(), []
    console = progress_console(quiet=flags.as_json)
    with spark_of(target) as engine:
        one = partial(change, engine=engine, live=live)
        for stream in streams:
            changes.append(one(stream, dry_run=True))
            if not flags.as_json:
                print_plan(changes[-1])
        applied = confirmed(flags, "Compute it?")
        for number, stream in enumerate(streams if applied else ()):
            with LiveView(console, live.streams) as view:
                done = view.until(partial(one, stream, publish=flags.yes))
            if not flags.yes:
                typer.echo(f"{stream.name}: {done.outcome}")
                if not typer.confirm("Publish it?", err=True):
                    typer.echo(
                        "Not published. The same command publishes it, without computing it again.", err=True
                    )
                    raise typer.Exit(EXIT_PROBLEM)
                with working(flags, "publishing ..."):
                    done = one(stream)
            changes[number] = done
            console.print(f"[green]    done[/]  {stream.name}  {done.outcome}", soft_wrap=True)
    if flags.as_json:
        print_json(target=target.name, streams=[document(done, changed=applied) for done in changes])

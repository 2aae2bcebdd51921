"""The commands that change several streams: the plan of each first, then one question, then the changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.change import confirm
from orchestration.cli.output import progress_console
from orchestration.cli.target_flags import StreamFlags

if TYPE_CHECKING:
    from resources.engine.engine import SparkEngine
    from resources.target.resolve import ResolvedTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesFlags(StreamFlags):
    """The flags of a command that changes the selected streams of a target.

    Attributes:
        yes: Whether to apply the plan without a question.
        dry_run: Whether to print the plan only.
    """

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False

    def confirm(self) -> bool:
        """Return whether to apply the plan that was printed: as the flags say, or as the user answers.

        Raises:
            Exit: Nobody can be asked, or the answer is no.
        """
        if not self.dry_run:
            confirm(self)
        return not self.dry_run


@contextmanager
def spark_of(target: "ResolvedTarget") -> "Iterator[SparkEngine]":
    """Yield the engine of a target, which ends with the block; an interrupt ends the process.

    A change that was interrupted is finished by the same command.
    """
    from orchestration.cli.interrupt import exit_interrupted, interruptible
    from resources.engine.engine import SparkEngine

    engine = SparkEngine(target.spark)
    try:
        with interruptible():
            yield engine
            engine.stop()
    except KeyboardInterrupt:
        exit_interrupted()


@contextmanager
def working(flags: ChangesFlags, what: str) -> Iterator[None]:
    """Show on a terminal what is done in the block."""
    with progress_console(quiet=flags.as_json).status(what):
        yield

"""The question before a command changes something, and the Spark that it then uses."""

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import typer

from tidemill.cli.shared.output import EXIT_NOT_DONE, EXIT_PROBLEM, print_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidemill.engines.engine import SparkEngine
    from tidemill.target.resolve import ResolvedTarget


class Asking(Protocol):
    """The flags that decide whether a plan is applied."""

    @property
    def yes(self) -> bool:
        """Whether to apply the plan without a question."""

    @property
    def dry_run(self) -> bool:
        """Whether to print the plan only."""

    @property
    def as_json(self) -> bool:
        """Whether a program reads the output."""


def confirmed(flags: Asking, question: str = "Change it?") -> bool:
    """Return whether to apply the plan that was printed: as the flags say, or as the user answers.

    Args:
        flags: The flags.
        question: The question.

    Raises:
        Exit: Nobody can be asked, or the answer is no.
    """
    if flags.dry_run or flags.yes:
        return not flags.dry_run
    if flags.as_json or not sys.stdin.isatty():
        print_problem("Nothing was changed. Fix: give --yes, or run the command in a terminal.")
        raise typer.Exit(EXIT_NOT_DONE)
    if not typer.confirm(question, err=True):
        raise typer.Exit(EXIT_PROBLEM)
    return True


@contextmanager
def spark_of(target: "ResolvedTarget") -> "Iterator[SparkEngine]":
    """Yield the engine of a target, which ends with the block; an interrupt ends the process.

    A change that was interrupted is finished by the same command.
    """
    from tidemill.cli.shared.interrupt import exit_interrupted, interruptible
    from tidemill.engines.engine import SparkEngine

    engine = SparkEngine(target.spark)
    try:
        with interruptible():
            yield engine
            engine.stop()
    except KeyboardInterrupt:
        exit_interrupted()

"""Ctrl-C and SIGTERM during `tidemill run`: the first one counts, and the process ends without waiting for threads."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import typer

from tidemill.cli.shared.output import EXIT_INTERRUPTED


@contextmanager
def interruptible(*, first: Callable[[], None] | None = None) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM in a `with` block raise KeyboardInterrupt, and ignore those after it.

    Schedulers and containers send SIGTERM. The run ends within seconds after the first signal; a second one would
    only suppress its last messages. A process that was started with a signal ignored keeps ignoring it.

    Args:
        first: Called by the first signal in place of the interrupt, which then is the second one.
    """
    defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    handled = {number: default for number, default in defaults.items() if signal.getsignal(number) == default}

    before = [] if first is None else [first]

    def interrupt(*_: object) -> None:
        if before:
            before.pop()()
            return
        for number in handled:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in handled:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, default in handled.items():
            if signal.getsignal(number) is interrupt:
                signal.signal(number, default)


def exit_interrupted() -> NoReturn:
    """Report that the run was interrupted, and end the process at once.

    A normal exit would join the threads of the streams, and one of them may still wait for Spark. The JVM ends
    by itself, because its standard input does.
    """
    with suppress(OSError):
        typer.echo(
            "Interrupted. No data was lost; the same command continues where this one stopped.", err=True
        )
        sys.stdout.flush()
    os._exit(EXIT_INTERRUPTED)

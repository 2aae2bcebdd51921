"""Ctrl-C during `tidemill run`: the first one counts, and the process ends without waiting for threads."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import typer

from orchestration.cli.output import EXIT_INTERRUPTED


@contextmanager
def interruptible() -> Iterator[None]:
    """Let the first SIGINT in a `with` block raise as usual, and ignore those after it.

    The run ends within seconds after the first one; a second one would only suppress its last messages. A
    process that was started with SIGINT ignored keeps ignoring it.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def interrupt(*_: object) -> NoReturn:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)


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

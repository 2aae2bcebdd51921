"""Ctrl-C during `tidemill run`: the first one counts, and the process ends without waiting for threads."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import typer

from orchestration.cli.options import INTERRUPTED


@contextmanager
def interruptible() -> Iterator[None]:
    """For a `with` block in which the first SIGINT raises as usual, and those after it do nothing.

    The run ends within seconds after the first; an impatient second one would only cost its last words. A
    process that was started with SIGINT ignored goes on ignoring it.
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


def leave_interrupted() -> NoReturn:
    """Says that the run was interrupted, and ends the process at once.

    A normal exit would join the threads of the streams, and one of them may still wait for Spark. The JVM ends
    by itself, because its standard input does.
    """
    with suppress(OSError):
        typer.echo(
            "Interrupted. Nothing was lost; the same command continues where this one stopped.", err=True
        )
        sys.stdout.flush()
    os._exit(INTERRUPTED)

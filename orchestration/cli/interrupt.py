"""Ctrl-C during `tidemill run`: Spark's start is broken off, and the process ends without waiting for threads."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, NoReturn

import psutil
import typer

from orchestration.cli.options import INTERRUPTED
from pipelines.streaming.errors import CanceledError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from resources.engine import Engine


class InterruptibleSessions:
    """An engine's sessions whose first start ends at once when SIGINT comes.

    A query can be stopped; a JVM that is just starting cannot be asked, so it is killed. Nothing is lost: no
    query of it has begun.

    Args:
        engine: Where the sessions come from.
    """

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._one_start = Lock()
        self._starting = False
        self._interrupted = False

    def new(self) -> "SparkSession":
        """A session with confs and temporary views of its own.

        Raises:
            CanceledError: SIGINT came before Spark was there.
        """
        # One at a time: a second stream must not start Spark again after the first start was broken off.
        with self._one_start:
            if self._interrupted:
                raise CanceledError
            self._starting = True
            try:
                self._engine.root()
            except Exception:
                if self._interrupted:
                    raise CanceledError from None
                raise
            finally:
                self._starting = False
        return self._engine.new()

    def default_partitions(self) -> int:
        """Shuffle partitions of a query that does not say."""
        return self._engine.default_partitions()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """For a `with` block in which SIGINT also breaks off a start of Spark, before it raises as usual.

        A process that was started with SIGINT ignored goes on ignoring it.
        """
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            if not self._interrupted:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    def _interrupt(self, *_: object) -> NoReturn:
        # The run ends within seconds now; an impatient second Ctrl-C would only cost its last words.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._interrupted = True
        if self._starting:
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        raise KeyboardInterrupt


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

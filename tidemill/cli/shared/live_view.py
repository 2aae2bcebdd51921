"""The view of a run in progress: a live table in a terminal, plain lines now and then elsewhere."""

import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

from rich.live import Live
from rich.spinner import Spinner

from tidemill.cli.shared.output import new_table
from tidemill.run.execute.progress import length

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from rich.console import Console, RenderableType

    from tidemill.run.execute.progress import LiveStream

T = TypeVar("T")

# Without a terminal, such as in a log of cron: often enough to see progress.
LINE_SECONDS = 30.0
UPDATE_SECONDS = 0.2
_COLUMNS = ("Stream", "Batch", "Rows", "Rows/s", "Batches left", "Time left")


class LiveView:
    """Shows the streams that run now.

    Args:
        console: Where it is shown; a quiet one shows nothing.
        streams: The streams that run now.
        clock: Seconds; for tests.
    """

    def __init__(
        self,
        console: "Console",
        streams: "Callable[[], Sequence[LiveStream]]",
        *,
        clock: "Callable[[], float]" = time.monotonic,
    ) -> None:
        self._console = console
        self._streams = streams
        self._clock = clock
        self._printed_at = clock()
        self._live = (
            Live(Spinner("dots", "checking for work to do ..."), console=console, transient=True)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> "Self":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: "TracebackType | None",
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def until(self, work: "Callable[[], T]") -> T:
        """Return what a function returns, and show meanwhile how far the streams are.

        Args:
            work: The function; it runs in a thread of its own, so that an interrupt reaches this one.
        """
        pool = ThreadPoolExecutor(1, thread_name_prefix="change")
        future = pool.submit(work)
        pool.shutdown(wait=False)  # an interrupt does not wait for it
        while not wait([future], timeout=UPDATE_SECONDS).done:
            self.update()
        return future.result()

    def update(self) -> None:
        """Show how far the streams are now."""
        streams = self._streams()
        if self._live is not None:
            self._live.update(_rendered(streams))
        elif streams and self._clock() - self._printed_at >= LINE_SECONDS:
            self._printed_at = self._clock()
            for stream in streams:
                self._console.print(str(stream), soft_wrap=True, markup=False)


def _rendered(streams: "Sequence[LiveStream]") -> "RenderableType":
    """Return the table, or a spinner while nothing runs but the start of Spark."""
    if all(stream.phase == "starting Spark" for stream in streams):
        return Spinner("dots", "starting Spark ..." if streams else "waiting for the next stream ...")
    table = new_table(*_COLUMNS, right=_COLUMNS[1:], no_wrap=_COLUMNS)
    for stream in streams:
        if stream.phase != "running":
            table.add_row(str(stream.stream), stream.phase)
            continue
        expected = stream.expected_batches
        about = "" if expected is None else f" of about {max(expected, stream.batches + 1)}"
        rate, left, seconds = stream.rows_per_second, stream.batches_left, stream.seconds_left
        table.add_row(
            str(stream.stream),
            f"{stream.batches + 1}{about}",
            f"{stream.rows_read:,}",
            "" if rate is None else f"{rate:,.0f}",
            "" if left is None else f"about {left}",
            "" if seconds is None else f"about {length(seconds)}",
        )
    return table

"""A running query: its progress as batches end, and a wait that an interrupt can end."""

import json
from collections.abc import Callable
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from tidemill.errors import CanceledError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 0.2
# A query has this long to stop; a run must end within 5 s of the request.
STOP_SECONDS = 3.0

Progress = dict[str, Any]


class RunningQuery:
    """A started query.

    The wait itself is on a thread of its own: an interrupt inside `awaitTermination` would leave Py4J's connection
    of that thread unusable, and with it the process (a Terminate in Dagster's UI would hang forever).

    Args:
        on_progress: Takes the progress of batches that are new, oldest first.

    Attributes:
        done: Set when the query has really ended.
    """

    def __init__(self, query: "StreamingQuery", on_progress: Callable[[list[Progress]], None]) -> None:
        self.done = Event()
        self._query = query
        self._on_progress = on_progress
        self._last_batch = -1
        self._last_trigger = ""
        self._ended_batches = 0
        self._failure: BaseException | None = None
        Thread(target=self._await, name="await", daemon=True).start()

    def wait(self, canceled: Event, *, enough: Callable[[], bool] = lambda: False) -> None:
        """Wait until the query ends.

        Args:
            canceled: Stops the query when it is set.
            enough: Asked a few times a second; once it is true the query is stopped as well, when the batch in
                progress has ended. The wait ends when the query has really ended, and as if it had done so by itself.

        Raises:
            CanceledError: The run was canceled.
            Exception: The query's failure.
        """
        batches_then: int | None = None
        stopping = False
        try:
            while not self.done.wait(POLL_SECONDS):
                self._report()
                if batches_then is None and enough():
                    batches_then = self._ended_batches
                if canceled.is_set():
                    self._stop()
                    break
                if not stopping and batches_then is not None and self._is_between_batches(batches_then):
                    stopping = True
                    self._stop()
        except BaseException:
            self._stop()
            raise
        if self.done.is_set():
            self._report()
        if canceled.is_set():
            raise CanceledError
        # A stop interrupts the next batch, and not each library on the way reports that as an interrupt. The next run
        # repeats the batch, and meets a failure of its own again.
        if self._failure is not None and not stopping:
            raise self._failure

    def _is_between_batches(self, ended: int) -> bool:
        """Return whether a batch has ended since so many had, or none is in progress."""
        return self._ended_batches > ended or not self._query.status["isTriggerActive"]

    def _await(self) -> None:
        try:
            self._query.awaitTermination()
        except BaseException as error:  # noqa: BLE001 - handed over to the waiting thread as it is
            self._failure = error
        finally:
            self.done.set()

    def _stop(self) -> None:
        """Stop the query from a fresh thread, because this one may be interrupted again."""
        Thread(target=self._query.stop, name="stop", daemon=True).start()
        self.done.wait(STOP_SECONDS)

    def _report(self) -> None:
        """Report the batches that ended since the last report, each once.

        Only a changed last entry makes the others worth reading, and Spark keeps no more than a hundred of them
        (`spark.sql.streaming.numRecentProgressUpdates`). Triggers that ran no batch have the id of the next one.
        """
        last = self._query.lastProgress
        if last is None or last["timestamp"] == self._last_trigger:
            return
        self._last_trigger = last["timestamp"]
        entries = [json.loads(entry.json) for entry in self._query.recentProgress]
        fresh = [
            entry
            for entry in entries
            if entry["batchId"] > self._last_batch and "addBatch" in entry.get("durationMs", {})
        ]
        if fresh:
            self._last_batch = max(entry["batchId"] for entry in fresh)
            self._ended_batches += len(fresh)
            self._on_progress(fresh)

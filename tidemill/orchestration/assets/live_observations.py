"""Observations of streams that are still running, so that a long run is visible in the UI."""

import time
from typing import TYPE_CHECKING

from dagster import AssetObservation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dagster import AssetExecutionContext, AssetKey, OpExecutionContext

    from tidemill.run.execute.progress import LiveStream
    from tidemill.text.names import StreamName

# Often enough for a person who waits, and few enough for the event log.
SECONDS = 30.0


class LiveObservations:
    """Records how far the running streams are, each at most every 30 seconds.

    Args:
        context: The context of the op.
        streams: The streams that run now.
        keys: The asset keys of the streams.
        clock: Seconds; for tests.
    """

    def __init__(
        self,
        context: "AssetExecutionContext | OpExecutionContext",
        streams: "Callable[[], Sequence[LiveStream]]",
        keys: "Mapping[StreamName, AssetKey]",
        *,
        clock: "Callable[[], float]" = time.monotonic,
    ) -> None:
        self._context = context
        self._streams = streams
        self._keys = keys
        self._clock = clock
        self._since: dict[StreamName, float] = {}

    def update(self) -> None:
        """Record the streams that have been running for half a minute since their last observation."""
        now = self._clock()
        for stream in self._streams():
            since = self._since.setdefault(stream.stream, now)
            if stream.phase == "running" and now - since >= SECONDS:
                self._since[stream.stream] = now
                self._record(stream)

    def _record(self, stream: "LiveStream") -> None:
        metadata: dict[str, str | int | float] = {
            "tidemill/running_batch": stream.batches + 1,
            "tidemill/rows_read_so_far": stream.rows_read,
        }
        for name, value in (
            ("expected_batches", stream.expected_batches),
            ("rows_per_second", stream.rows_per_second),
            ("seconds_left", stream.seconds_left),
        ):
            if value is not None:
                metadata[f"tidemill/{name}"] = round(value, 1)
        self._context.log_event(
            AssetObservation(self._keys[stream.stream], description=str(stream), metadata=metadata)
        )

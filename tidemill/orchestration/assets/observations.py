"""Observations of feeds, and of streams that are still running, so that a long run is visible in the UI."""

import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from dagster import AssetKey, AssetObservation

from tidemill.connectors.backlog import amount_of
from tidemill.text.digest import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dagster import AssetExecutionContext, OpExecutionContext

    from tidemill.connectors.backlog import Backlog
    from tidemill.definitions.source import Source
    from tidemill.run.decide.tick import Decision
    from tidemill.run.execute.progress import LiveStream
    from tidemill.text.names import StreamName

DATA_VERSION = "dagster/data_version"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedState:
    """A feed as a tick found it.

    Attributes:
        reader: The stream that reads it.
        backlog: What that stream has not read.
    """

    source: "Source"
    reader: str
    backlog: "Backlog"

    @property
    def feed(self) -> str:
        """The feed's name."""
        return str(self.source.feed_name)

    @property
    def version(self) -> str:
        """The feed's data version: its end offsets, or its files."""
        return self.backlog.head

    def observation(self, key: AssetKey, now: datetime) -> AssetObservation:
        """Return the observation of the feed.

        Args:
            key: The feed's asset key.
            now: The current time, which the lag is measured against.
        """
        amount = amount_of([self.backlog])
        lag = None if amount.oldest_at is None else max(0.0, (now - amount.oldest_at).total_seconds())
        metadata: dict[str, str | int | float] = {
            "tidemill/head": self.version,
            "tidemill/reader": self.reader,
            "tidemill/lag_seconds": round(lag or 0.0, 1),
        }
        if self.backlog.unit == "messages":
            metadata["tidemill/lag_rows"] = self.backlog.count
        else:
            metadata["tidemill/lag_files"] = self.backlog.count
        return AssetObservation(key, metadata=metadata, tags={DATA_VERSION: digest(self.version)})


def feed_states(decisions: "Iterable[Decision]") -> list[FeedState]:
    """Return the state of every feed whose newest data a tick knows; a feed of several streams once."""
    states: dict[str, FeedState] = {}
    for decision in decisions:
        for name, backlog in decision.backlog.items():
            source = decision.stream.sources[name]
            if source.feed_name is not None and backlog.head:
                states[source.feed_name] = FeedState(
                    source=source, reader=str(decision.stream.name), backlog=backlog
                )
    return list(states.values())


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

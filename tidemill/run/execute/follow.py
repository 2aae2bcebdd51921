"""Runs that follow their sources: a processing-time trigger, and what ends a query that has one."""

import math
import re
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING

from tidemill.connectors.registry import connector_of
from tidemill.definitions.options import Mode
from tidemill.run.tables.versions import current_versions

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.storage.lake import Lake

# How often the snapshots of a query are compared with what it has read: a listing of each log and of each folder.
_LOOK_SECONDS = 5.0
# How often its watermark is compared with that of a query that never stopped: to raise it starts the query again.
_MARK_SECONDS = 60.0
_REMOVAL = re.compile("DELTA_SOURCE_(TABLE_IGNORE_CHANGES|IGNORE_DELETE)")
# How often a query that is not made of batches saves its progress; a real-time batch lasts at least 5 s.
_SAVED_EVERY: dict[Mode, timedelta] = {
    "real-time": timedelta(seconds=30),
    "continuous": timedelta(seconds=10),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """Queries that continue with what arrives, until they are asked to end.

    Attributes:
        every: How often a batch starts; 0 for as soon as the one before has ended. In real-time and continuous mode
            how often Spark saves the progress; 0 for 30 s and 10 s.
        length: How long; None for no limit. Whoever started the run sets `ended` then.
        ended: Set it to end them: each query stops when its batch in progress has ended.
        mode: How Spark runs them.
    """

    every: timedelta = timedelta(0)
    length: timedelta | None = None
    ended: Event = field(default_factory=Event)
    mode: Mode = "micro-batch"

    @property
    def trigger(self) -> dict[str, str]:
        """The trigger of Spark."""
        every = self.every or _SAVED_EVERY.get(self.mode, self.every)
        kind = {"real-time": "realTime", "continuous": "continuous"}.get(self.mode, "processingTime")
        return {kind: f"{every // timedelta(milliseconds=1)} milliseconds"}


def interruption(
    follow: Follow,
    stream: "Stream",
    lake: "Lake",
    *,
    pins: Mapping[str, int],
    has_timers: Callable[[], bool],
    is_held_back: Callable[[], bool],
) -> Callable[[], bool]:
    """Return what asks whether an endless query has to stop after its batch in progress.

    It stops for good when it is asked to, and for another query to take over where a table that it reads as static has
    another version, where the files of a snapshot are others, where timers may be due, and where its watermark is held
    back by an input that is idle or that had its last event before this query.

    Args:
        follow: The run.
        stream: The stream.
        lake: The lake.
        pins: The static versions of the query.
        has_timers: Asked whether its state may have timers that fire by the clock.
        is_held_back: Asked whether the watermark is behind that of a query that never stopped.
    """
    started = time.monotonic()
    every = stream.run_when.timers_every
    timers_at = started + every.total_seconds() if isinstance(every, timedelta) else math.inf
    next_look, next_mark = started + _LOOK_SECONDS, started + _MARK_SECONDS
    signatures = _signatures(stream, lake)

    def has_to_stop() -> bool:
        nonlocal next_look, next_mark
        if follow.ended.is_set():
            return True
        now = time.monotonic()
        if now < next_look:
            return False
        next_look = now + _LOOK_SECONDS
        if now >= next_mark:
            next_mark = now + _MARK_SECONDS
            if is_held_back():
                return True
        return (
            (now >= timers_at and has_timers())
            or (bool(pins) and current_versions(stream, lake) != pins)
            or _signatures(stream, lake) != signatures
        )

    return has_to_stop


def _signatures(stream: "Stream", lake: "Lake") -> "dict[str, Hashable]":
    """Return what shows that a snapshot without versions has other data, by the name of its source."""
    snapshots = ((name, source) for name, source in stream.sources.items() if not source.streaming)
    return {name: connector_of(source).signature(source, lake) for name, source in snapshots}


def is_removal(error: BaseException) -> bool:
    """Return whether a query has come to a commit that removed rows of a table that it reads."""
    return _REMOVAL.search(str(error)) is not None


def after(limit: timedelta) -> Callable[[], bool]:
    """Return what asks whether a length of time has passed since this call."""
    deadline = time.monotonic() + limit.total_seconds()
    return lambda: time.monotonic() > deadline

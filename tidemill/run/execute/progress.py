"""How far a run is while it runs: plain values that a terminal or Dagster shows."""

import math
import time
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Literal

from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemill.connectors.backlog import Backlog
    from tidemill.definitions.source import Source
    from tidemill.text.names import StreamName

Phase = Literal["starting Spark", "preparing", "running"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStream:
    """How far one stream is.

    Attributes:
        phase: `starting Spark`, `preparing` (repairs and the plan of the query) or `running`.
        batches: The batches that have ended.
        expected_batches: About how many there will be; None where nobody knows.
        rows_read: The rows that they read.
        seconds: How long the query has been running.
    """

    stream: "StreamName"
    phase: Phase
    batches: int = 0
    expected_batches: int | None = None
    rows_read: int = 0
    seconds: float = 0.0

    @property
    def rows_per_second(self) -> float | None:
        """The rows per second so far; None before the first batch has ended."""
        return self.rows_read / self.seconds if self.batches and self.seconds else None

    @property
    def batches_left(self) -> int | None:
        """About how many batches are left, the one that is running included; None where nobody knows."""
        return None if self.expected_batches is None else max(1, self.expected_batches - self.batches)

    @property
    def seconds_left(self) -> float | None:
        """About how long it will take; None where nobody knows."""
        if self.batches_left is None or not self.batches:
            return None
        return self.seconds / self.batches * self.batches_left

    def __str__(self) -> str:
        if self.phase != "running":
            return f"{self.stream}: {self.phase}"
        about = (
            ""
            if self.expected_batches is None
            else f" of about {max(self.batches + 1, self.expected_batches)}"
        )
        parts = [f"batch {self.batches + 1}{about}", pluralize(self.rows_read, "row")]
        if self.rows_per_second is not None:
            parts.append(f"{self.rows_per_second:,.0f} rows/s")
        if self.seconds_left is not None:
            parts.append(f"about {length(self.seconds_left)} left")
        return f"{self.stream}: {', '.join(parts)}"


@dataclass(slots=True)
class Live:
    """The streams that are running now, written by their threads and read by another one."""

    _streams: dict["StreamName", LiveStream] = field(default_factory=dict)
    _started: dict["StreamName", float] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def enter(self, stream: "StreamName", phase: Phase, *, expected_batches: int | None = None) -> None:
        """Record that a stream begins a phase."""
        with self._lock:
            before = self._streams.get(stream, LiveStream(stream=stream, phase=phase))
            now = replace(before, phase=phase, expected_batches=expected_batches, seconds=0.0)
            self._streams[stream] = now
            self._started[stream] = time.monotonic()

    def add(self, stream: "StreamName", *, batches: int, rows_read: int) -> None:
        """Record batches that have ended."""
        with self._lock:
            before = self._streams[stream]
            self._streams[stream] = replace(
                before,
                batches=before.batches + batches,
                rows_read=before.rows_read + rows_read,
                seconds=time.monotonic() - self._started[stream],
            )

    def leave(self, stream: "StreamName") -> None:
        """Record that a stream has ended."""
        with self._lock:
            self._streams.pop(stream, None)

    def streams(self) -> list[LiveStream]:
        """Return the streams that are running, in the order of their start."""
        with self._lock:
            return list(self._streams.values())


def expected_batches(sources: "Mapping[str, Source]", backlog: "Mapping[str, Backlog]") -> int | None:
    """Return about how many batches a backlog will take, by the limits of the sources; None where one has none.

    The number of batches of a table is unknown: a limit counts files, and a version has any number of them.
    """
    most = 0
    for name, waiting in backlog.items():
        limit = _limit(sources[name], waiting)
        if not waiting:
            continue
        if limit is None:
            return None
        most = max(most, math.ceil(waiting.count / limit))
    return most or None


def _limit(source: "Source", backlog: "Backlog") -> int | None:
    if backlog.unit == "messages":
        return getattr(source, "max_records_per_batch", None)
    if backlog.unit == "files" and getattr(source, "max_bytes_per_batch", None) is None:
        return getattr(source, "max_files_per_batch", None)
    return None


def length(seconds: float) -> str:
    """Return a length of time in one or two units: `45 s`, `12 min`, `3 h 20 min`."""
    minutes = round(seconds / 60)
    if seconds < 90:  # noqa: PLR2004 - below that, seconds say more
        return f"{round(seconds)} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"  # noqa: PLR2004

"""Waiting: for the runs that hold the leases of some streams, and after a failure."""

import time
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.definitions.code_version import code_version
from tidemill.records.stream_records import StreamRecords
from tidemill.text.digest import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidemill.definitions.stream import Stream
    from tidemill.records.lease import Holder
    from tidemill.records.manifest import Manifest
    from tidemill.records.stream_records import Snapshot
    from tidemill.storage.lake import Lake

POLL_SECONDS = 0.2


def wait_until_free(
    streams: "Sequence[Stream]",
    lake: "Lake",
    *,
    seconds: float,
    on_wait: "Callable[[Stream, Holder], None]",
) -> None:
    """Wait until no run holds the lease of any of these streams, or the time is over.

    No lease is taken meanwhile, so two runs that wait for each other's streams cannot block each other. A stream
    that is held afterwards is `busy` in the run that follows.

    Args:
        seconds: How long to wait at most; `math.inf` for no limit.
        on_wait: Receives the stream and the holder that are waited for, at every look.
    """
    deadline = time.monotonic() + seconds
    for stream in streams:
        records = StreamRecords(lake, stream.name)
        while (holder := records.holder()) is not None and time.monotonic() < deadline:
            on_wait(stream, holder)
            time.sleep(POLL_SECONDS)


FIRST_PAUSE = timedelta(minutes=1)
LONGEST_PAUSE = timedelta(hours=1)


def failure_position(stream: "Stream", manifest: "Manifest", snapshot: "Snapshot | None") -> str:
    """Return a hash of what a failure depends on: the code, the end of the checkpoint, the recorded sources.

    It is the same in every process, and it changes with an edit of the code, a committed batch, a repaired
    checkpoint, and with `tidemill accept`, `rebind` and `rename-source`.

    Args:
        snapshot: Its records; None where they cannot be read.
    """
    tail = None if snapshot is None else [snapshot.next_batch, snapshot.last_commit]
    sources = {name: asdict(source) for name, source in manifest.active.sources.items()}
    accepted = [change.accepted_at for change in manifest.active.accepted_changes]
    return digest([code_version(stream), manifest.active.number, tail, sources, accepted])


def pause_after(failures: int) -> timedelta:
    """Return how long to wait after so many failures in a row: 1, 2, 4, ... minutes, at most an hour."""
    doublings = min(max(failures - 1, 0), 10)
    return min(FIRST_PAUSE * (1 << doublings), LONGEST_PAUSE)

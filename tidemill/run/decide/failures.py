"""When a stream that failed may run again.

A terminal failure is repeated by every run until the code, the checkpoint or what the manifest records about the
sources changes; a transient one is worth a retry, after a pause that doubles.
"""

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.definitions.code_version import code_version
from tidemill.text.digest import digest

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.records.manifest import Manifest
    from tidemill.records.stream_records import Snapshot

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

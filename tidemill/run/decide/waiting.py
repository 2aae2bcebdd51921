"""Wait for the runs that hold the leases of some streams."""

import time
from typing import TYPE_CHECKING

from tidemill.records.stream_records import StreamRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidemill.definitions.stream import Stream
    from tidemill.records.lease import Holder
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

"""The guard of an edge: the commits of a stream's table that another stream reads as append-only.

Spark reads such a table with `skipChangeCommits`, because any other reader stops at the first rewritten file.
Tidemill decides what a commit that removed rows means, so that none passes unseen.
"""

from typing import TYPE_CHECKING

from pipelines.streaming import delta_log
from pipelines.streaming.checkpoint import Tail
from pipelines.streaming.errors import UpstreamChangeError
from pipelines.streaming.records import Lake
from pipelines.streaming.sources import StreamReading

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipelines.streaming.stream import Stream


def check_edges(stream: "Stream", lake: Lake, tail: Tail) -> None:
    """Check every commit between a reader's position and the head of each table it reads.

    Raises:
        UpstreamChangeError: A commit removed or changed rows.
    """
    for name, source in _append_readings(stream).items():
        position = None if tail.latest_offset is None else tail.latest_offset.source(name)
        offset = None if position is None else position.delta
        first = 0 if offset is None else offset.version
        for commit in delta_log.commits(lake.table(source.stream), first):
            if commit.removes_rows:
                raise UpstreamChangeError(
                    f"version {commit.version} of {source.stream} ({commit.operation}) removed or changed "
                    "rows that this stream may have read; its own table would keep the old ones.",
                    stream=stream.name,
                    fix=f"rebuild {stream.name} and the streams that read it, or write corrections to "
                    f"{source.stream} as new rows. (RESTORE is such a commit, too.)",
                )


def _append_readings(stream: "Stream") -> "Mapping[str, StreamReading]":
    return {
        name: source
        for name, source in stream.sources.items()
        if isinstance(source, StreamReading) and source.mode == "append"
    }

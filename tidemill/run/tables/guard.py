"""The guard of an edge: the commits of a stream's table that another stream reads as append-only.

Spark reads such a table with `skipChangeCommits`, because any other reader stops at the first rewritten file.
Tidemill decides what a commit that removed rows means, so that none passes unseen.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

from tidemill.checkpoint import Tail
from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.source_record import SourceRecord
from tidemill.errors import UpstreamChangeError
from tidemill.storage import delta_log
from tidemill.storage.commit_metadata import commit_metadata
from tidemill.storage.lake import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidemill.definitions.stream import Stream
    from tidemill.storage import delta_log
    from tidemill.storage.delta_log import Commit
    from tidemill.text.names import StreamName


def check_edges(stream: "Stream", lake: Lake, tail: Tail, records: Mapping[str, SourceRecord]) -> bool:
    """Check every commit between a reader's position and the head of each table it reads.

    Args:
        tail: The end of the reader's checkpoint.
        records: The records of its sources, with the commits that the user has accepted.

    Returns:
        Whether the reader passes commits that removed rows: the user has accepted them, or a rewind took them back.

    Raises:
        UpstreamChangeError: A commit removed or changed rows.
    """
    passes = False
    for upstream, commit, is_refused in _removals(stream, lake, tail, records):
        if is_refused:
            raise _refusal(stream, upstream, commit)
        passes = True
    return passes


def _refusal(stream: "Stream", upstream: "StreamName", commit: "Commit") -> UpstreamChangeError:
    edge = f"{upstream}@{commit.version}"
    metadata = commit_metadata(commit)
    again = f"compute it and its readers again: tidemill rebuild {quote(str(stream.name))} --downstream"
    if {"begin", "end"} <= metadata.keys():
        span = f"--from {quote(str(metadata['begin']))} --to {quote(str(metadata['end']))}"
        again = f"replay the same range: tidemill backfill {quote(str(stream.name))} {span} --downstream"
    return UpstreamChangeError(
        f"version {commit.version} of {upstream} ({commit.operation}) removed or changed rows that this "
        "stream may have read; its own table would keep the old ones.",
        stream=stream.name,
        fix=f"{again}; or keep what {stream.name} has, and skip that commit: tidemill accept "
        f"{quote(str(stream.name))} --version {quote(edge)}",
        code="upstream-rows-changed",
    )


def refused_commits(
    stream: "Stream", lake: Lake, tail: Tail, records: Mapping[str, SourceRecord]
) -> "Iterator[tuple[StreamName, delta_log.Commit]]":
    """Yield the unread commits of append-only edges that removed rows and are not accepted."""
    for upstream, commit, is_refused in _removals(stream, lake, tail, records):
        if is_refused:
            yield upstream, commit


def _removals(
    stream: "Stream", lake: Lake, tail: Tail, records: Mapping[str, SourceRecord]
) -> "Iterator[tuple[StreamName, Commit, bool]]":
    """Yield the unread commits of append-only edges that removed rows, each with whether it is refused."""
    for name, upstream in append_readings(stream).items():
        record = records.get(name, SourceRecord())
        offset = DeltaPosition.of(tail.planned(name))
        # A snapshot has no row that was removed before it.
        begin = 0 if record.start_version is None else record.start_version + 1
        first = begin if offset is None else offset.version
        commits = list(lake.table(upstream).log.commits(first))
        restores = restores_in(commits)  # a reader passes them by (run/tables/rewound.py)
        for commit in commits:
            if commit.removes_rows:
                is_passed = any(restore.takes_back(commit.version) for restore in restores)
                yield upstream, commit, not is_passed and commit.version not in record.accepted_versions


def append_readings(stream: "Stream") -> "dict[str, StreamName]":
    """Return the streams whose tables are read as append-only, by the name of the source."""
    return {
        name: source.upstream
        for name, source in stream.sources.items()
        if source.upstream is not None and source.streaming and not source.reads_changes
    }


@dataclass(frozen=True, slots=True, order=True)
class Restore:
    """A commit that restored an earlier version of a table.

    Attributes:
        restored: The version that it restored.
    """

    version: int
    restored: int

    def takes_back(self, version: int) -> bool:
        """Return whether a commit is one that was taken back, or the restore itself."""
        return self.restored < version <= self.version


def restores_in(commits: "Iterable[Commit]") -> list[Restore]:
    """Return the restores of a table's log that no later one has taken back, oldest first.

    Args:
        commits: Commits of the log, oldest first.
    """
    kept: list[Restore] = []
    for commit in reversed(list(commits)):
        restored = commit_metadata(commit).get("restores")
        if isinstance(restored, int) and not any(later.takes_back(commit.version) for later in kept):
            kept.append(Restore(commit.version, restored))
    return kept[::-1]

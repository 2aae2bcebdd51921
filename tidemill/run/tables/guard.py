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


def check_edges(stream: "Stream", lake: Lake, tail: Tail, records: Mapping[str, SourceRecord]) -> None:
    """Check every commit between a reader's position and the head of each table it reads.

    Args:
        tail: The end of the reader's checkpoint.
        records: The records of its sources, with the commits that the user has accepted.

    Raises:
        UpstreamChangeError: A commit removed or changed rows.
    """
    for upstream, commit in refused_commits(stream, lake, tail, records):
        edge = f"{upstream}@{commit.version}"
        metadata = commit_metadata(commit)
        again = f"compute it and its readers again: tidemill rebuild {quote(str(stream.name))} --downstream"
        if {"begin", "end"} <= metadata.keys():
            span = f"--from {quote(str(metadata['begin']))} --to {quote(str(metadata['end']))}"
            again = f"replay the same range: tidemill backfill {quote(str(stream.name))} {span} --downstream"
        raise UpstreamChangeError(
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
    for name, upstream in append_readings(stream).items():
        record = records.get(name, SourceRecord())
        commits = _unread(lake, upstream, DeltaPosition.of(tail.planned(name)), record)
        restores = restores_in(commits)  # a reader passes them by (run/tables/rewound.py)
        for commit in commits:
            is_passed = any(restore.takes_back(commit.version) for restore in restores)
            if commit.removes_rows and not is_passed and commit.version not in record.accepted_versions:
                yield upstream, commit


def passes_removals(stream: "Stream", lake: Lake, tail: Tail, records: Mapping[str, SourceRecord]) -> bool:
    """Return whether unread commits removed rows: where `check_edges` raises nothing, the reader passes them all."""
    return any(
        commit.removes_rows
        for name, upstream in append_readings(stream).items()
        for commit in _unread(
            lake, upstream, DeltaPosition.of(tail.planned(name)), records.get(name, SourceRecord())
        )
    )


def _unread(
    lake: Lake, upstream: "StreamName", offset: DeltaPosition | None, record: SourceRecord
) -> "list[Commit]":
    # A snapshot has no row that was removed before it.
    begin = 0 if record.start_version is None else record.start_version + 1
    return list(lake.table(upstream).log.commits(begin if offset is None else offset.version))


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

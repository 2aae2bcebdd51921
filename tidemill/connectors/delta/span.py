"""The versions of a table that are read again: by the times of their commits.

The log has rows as they were written. Where a commit has removed or changed rows since, or where an operation such as
a backfill has written rows of an earlier time, the versions one by one are not what the table has: then everything is
read, as of the version up to which the stream has read.
"""

from typing import TYPE_CHECKING

from tidemill.connectors.answers import Period, SourceSpan
from tidemill.connectors.delta.location import table_of
from tidemill.connectors.delta.position import DeltaPosition, at_version
from tidemill.connectors.delta.source import DeltaSource
from tidemill.definitions.source import StreamTable
from tidemill.storage.commit_metadata import commit_metadata
from tidemill.storage.delta_log import Commit, by_kind
from tidemill.storage.table_ref import TableRef

if TYPE_CHECKING:
    from tidemill.checkpoint import SourceOffset
    from tidemill.storage.lake import Lake

_STARTING = ("startingversion", "startingtimestamp")


def table_span(
    source: DeltaSource | StreamTable, lake: "Lake", offset: "SourceOffset", period: Period
) -> SourceSpan:
    """Return what is read of a table.

    Args:
        offset: The offset up to which the stream has read.
        period: The time of what is read.
    """
    name = str(source.upstream) if isinstance(source, StreamTable) else source.describe()
    at = DeltaPosition.of(offset)
    if at is None or offset.raw is None:
        return SourceSpan(reads=f"all of {name}")
    if source.mode != "append":
        return SourceSpan(reads=f"all of {name}, because its changes are read")
    options = source.options if isinstance(source, DeltaSource) else {}
    if at.is_starting or any(key.lower() in _STARTING for key in options):
        return SourceSpan(reads=f"all of {name}, because the stream begins within it")
    table = table_of(source, lake)
    newest = at.version - (at.index < 0)
    versions = [version for version in table.log.versions() if version <= newest]
    commits = [commit for version in versions if (commit := table.log.commit(version))]
    chosen = [
        commit.version for commit in commits if commit.timestamp_ms is None or period.has(commit.timestamp_ms)
    ]
    if not versions or versions[-1] != newest:
        return SourceSpan(reads=f"all of {name}, because its log is incomplete")
    later = (commit.version for commit in commits if (commit.timestamp_ms or 0) > period.last_ms)
    begin = min(chosen) if chosen else min(later, default=newest)
    end = max(chosen) + 1 if chosen else begin
    because = _rewritten(table, [commit for commit in commits if commit.version >= begin])
    if because is not None:
        return SourceSpan(reads=f"all of {name}, because {because}")
    versions_read = f"versions {begin} to {end - 1}" if end - begin > 1 else f"version {begin}"
    return SourceSpan(
        reads=f"{versions_read if chosen else 'no version'} of {name}",
        is_empty=not chosen,
        first_version=begin,
        end=at_version(offset.raw, end) if end <= newest else offset.raw,
    )


def _rewritten(table: TableRef, commits: list[Commit]) -> str | None:
    """Return why the versions of a table one by one are not what it has; None where they are."""
    if commits and commits[-1].version - commits[0].version + 1 != len(commits):
        return "its log is incomplete"
    for commit in commits:
        if commit.removes_rows:
            return f"version {commit.version} removed or changed rows"
        if commit.adds_rows and "operation" in commit_metadata(commit):
            return f"an operation wrote version {commit.version}"
        actions = by_kind(table.log.actions(commit.version) or [])
        added = (file["path"] for kind, file in actions if kind == "add" and file.get("dataChange"))
        if table.missing(added):
            return f"a file of version {commit.version} was removed"
    return None

"""The backlog in a Delta table: the commits of its log from the checkpoint's version on.

Only names are listed and only commits that the stream has not read are opened, up to the first with files that
the stream would read (Delta protocol, "Add File and Remove File": `dataChange`; "Add CDC File"). Compactions and
commits without files do not count, although Spark's offset would move past them.

Delta's offset is (version, index). Index -1 stands for a version of which nothing was read, and index i for a
version of which the files 0 to i were read. A reader that has read everything is at (head + 1, -1); a reader of
the change data feed stays at (head, last file) where the head has change files.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill.checkpoint import SourceOffset
from tidemill.connectors.backlog import Backlog, Unread
from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.delta.rows import bytes_added, rows_added
from tidemill.connectors.known_options import option_of
from tidemill.definitions.run_when import Amount, moment
from tidemill.errors import DataLossError, DefinitionError, TerminalError
from tidemill.storage.log_end import log_end
from tidemill.storage.table_ref import TableRef
from tidemill.text.durations import parse_duration

_DEFAULT_RETENTION = "30 days"
# Commits are removed once a day at most; a log with a shorter retention keeps them as long.
_SOONEST_CLEANUP_SECONDS = 6 * 3600
_MERGED_ROWS = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


@dataclass(frozen=True, slots=True)
class UnreadVersions(Unread):
    """Versions of a Delta table that are not read, or only in part.

    Attributes:
        versions: The versions whose commit the log still has, ascending.
    """

    table: TableRef
    versions: tuple[int, ...]

    def amount(self, count: int, *, times: bool) -> Amount:
        """Return the rows, bytes and times of their commits; they cost no round trip."""
        rows: list[int] = []
        sizes: list[int] = []
        written = []
        modified = self.table.log.files(self.versions[0]).written
        for version in self.versions:
            added = self.table.log.actions(version)
            if added is None or version not in modified:
                continue
            written.append(moment(int(modified[version] * 1000)))
            sizes.append(bytes_added(added))
            if (number := rows_added(added)) is not None:
                rows.append(number)
        return Amount(
            rows=sum(rows) if rows else None,
            bytes=sum(sizes) if sizes else None,
            oldest_at=min(written, default=None),
            newest_at=max(written, default=None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReading:
    """How a stream reads a table.

    Attributes:
        changes: Whether it reads the change data feed.
        options: Options of Delta's streaming source, as declared.
        guarded: Whether commits that removed rows stop the stream (run/tables/guard.py); Spark itself skips them.
        accepted: Such commits that the user has accepted.
        snapshot: Whether a reader without an offset begins with a snapshot of the table.
        first: The version that it begins with instead; None where the options say it.
    """

    changes: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    guarded: bool = False
    accepted: Collection[int] = ()
    snapshot: bool = False
    first: int | None = None


@dataclass(frozen=True, slots=True)
class _Log:
    """What a table's log has from a version on.

    Attributes:
        written: When the commits were written, seconds since the epoch, by version, ascending.
        head: The newest version; -1 where there is no table.
    """

    table: TableRef
    written: Mapping[int, float]
    head: int


def waiting_versions(
    table: TableRef, offset: SourceOffset | None, *, what: str, reading: TableReading | None = None
) -> Backlog:
    """Return the versions of a table from the first unread one that changes data.

    Args:
        offset: Delta's offset.
        what: A description of the source.
        reading: How the stream reads the table.

    Raises:
        TerminalError: The table is missing, is another one, or cannot be read.
        DataLossError: Its log no longer has the next version, or the table is older than the offset.
    """
    reading = reading or TableReading()
    at = DeltaPosition.of(offset)
    log = _log(table, what, 0 if at is None else at.version)
    if at is None:
        return _before_the_first_batch(log, reading)
    if log.head < 0:
        raise TerminalError(
            f"{what}: the table in {table} is missing; the checkpoint continues at its version {at.version}.",
            lost="Rows that were written to it after that version are lost unless it is restored.",
            fix="restore the table. A table that was recreated in its place needs a new checkpoint of this stream.",
            code="source-table-missing",
        )
    _check_same_table(log, at, what)
    if at.is_starting:  # it is in the snapshot that it began with: the rest waits
        return Backlog(
            max(1, log.head - at.version + 1),
            "versions",
            f"snapshot {at.version}",
            head=f"version {log.head}",
        )
    _check_continues(log, at, what, tolerant=option_of(reading.options, "failondataloss") == "false")
    # A version of which the reader has read a file was not without data.
    following = [version for version in log.written if version > at.version - (at.index < 0)]
    return _from(log, at.version, at.index, reading) or _without_data(log, following)


def _log(table: TableRef, what: str, first: int) -> _Log:
    try:
        files = table.log.files(first)
    except OSError as error:
        raise TerminalError(
            f"{what}: the log of {table} cannot be read: {error.strerror}.",
            fix="give this user the right to read it.",
            code="source-not-readable",
        ) from None
    return _Log(table, files.written, files.head)


def _before_the_first_batch(log: _Log, reading: TableReading) -> Backlog:
    start = option_of(reading.options, "startingversion") if reading.first is None else str(reading.first)
    if start or (not reading.snapshot and 0 in log.written):
        return _from(log, int(start) if start.isdigit() else 0, -1, reading)
    # The snapshot may have no row that the log still shows, or none of those that it shows.
    opened = log.table.open()
    head = f"version {log.head}"
    if opened is None or not opened.file_uris():
        return Backlog(0, "versions", head=head)
    return Backlog(log.head + 1, "versions", f"snapshot {log.head}", head=head)


def _from(log: _Log, first: int, index: int, reading: TableReading) -> Backlog:
    versions = [version for version in log.written if version >= first]
    for position, version in enumerate(versions):
        read = index + 1 if version == first else 0
        if _has_unread_files(log.table, version, read, reading):
            within = "within version" if read > 0 else "version"
            unread = versions[position:]
            return Backlog(
                len(unread),
                "versions",
                f"{within} {version}",
                head=f"version {log.head}",
                unread=UnreadVersions(log.table, tuple(unread)),
            )
    return Backlog(0, "versions", head=f"version {log.head}")


def _without_data(log: _Log, versions: list[int]) -> Backlog:
    """Return the backlog of a reader that has read all data, from the versions after its position.

    The log's cleanup removes old commits, and a reader whose next commit is missing cannot continue, even if
    that commit had no data. A run moves the reader to the head, so it is due long before that.
    """
    head = f"version {log.head}"
    age = time.time() - log.written[versions[0]] if versions else 0.0
    if age < _SOONEST_CLEANUP_SECONDS or age < _log_retention_seconds(log) / 4:
        return Backlog(0, "versions", head=head)
    detail = f"version {versions[0]} has no data, and is older than a quarter of the log's retention"
    return Backlog(len(versions), "versions", detail, head=head)


def _id_and_properties(log: _Log) -> tuple[str | None, Mapping[str, str]]:
    """Return a table's id and properties; None and none where there is no table."""
    if (end := log_end(log.table.log, log.head)) is not None:
        return end.table_id, end.properties
    opened = log.table.open()
    return (None, {}) if opened is None else (str(opened.metadata().id), opened.metadata().configuration)


def _log_retention_seconds(log: _Log) -> float:
    """Return how long the table keeps its log (Delta protocol, `delta.logRetentionDuration`)."""
    _, properties = _id_and_properties(log)
    declared = properties.get("delta.logRetentionDuration")
    try:
        length = parse_duration(
            (declared or _DEFAULT_RETENTION).removeprefix("interval "), field="log retention"
        )
    except DefinitionError:  # in months, or in a form of its own
        length = parse_duration(_DEFAULT_RETENTION, field="log retention")
    return length.total_seconds()


def _has_unread_files(table: TableRef, version: int, read: int, reading: TableReading) -> bool:
    """Return whether a commit has files after the first `read` ones, as Delta numbers them for this reader."""
    if version in reading.accepted:
        return False
    adds = removes = changes = 0
    no_row_merged = False
    for action in table.log.iter_actions(version) or ():
        adds += _is_data(action.get("add"))
        removes += _is_data(action.get("remove"))
        changes += "cdc" in action
        no_row_merged = no_row_merged or merged_no_row(action.get("commitInfo"))
        if reading.guarded and (removes or adds > read):
            return True  # a commit of many files is long, and its start is often enough
    if reading.changes:
        return (changes or (0 if no_row_merged else adds + removes)) > read
    if not removes or option_of(reading.options, "ignorechanges") == "true":
        return adds > read
    if option_of(reading.options, "skipchangecommits") == "true":
        return False
    # Anything else makes Spark stop with an error, which a run has to show.
    return adds > 0 or option_of(reading.options, "ignoredeletes") != "true"


def _is_data(file: dict[str, Any] | None) -> bool:
    return file is not None and bool(file.get("dataChange"))


def merged_no_row(info: dict[str, Any] | None) -> bool:
    """Return whether a commit is a MERGE that changed no row: Delta leaves its files out of the change feed."""
    if info is None or info.get("operation") != "MERGE":
        return False
    metrics = info.get("operationMetrics", {})
    return all(metrics.get(name) == "0" for name in _MERGED_ROWS)


def _check_same_table(log: _Log, at: DeltaPosition, what: str) -> None:
    # The first commit decides in a moment; where it is missing or has another id, the table's state decides.
    table = log.table
    if _first_id(table) == at.reservoir_id:
        return
    now, _ = _id_and_properties(log)
    if now != at.reservoir_id:
        raise TerminalError(
            f"{what}: the table in {table} is another one (id {now}) than the checkpoint has read "
            f"(id {at.reservoir_id}): it was deleted and recreated.",
            lost="Rows that the old table got after the last run are lost unless it is restored.",
            fix="restore the old table, or rebuild this stream from the new one with a new checkpoint.",
            code="source-table-recreated",
        )


def _check_continues(log: _Log, at: DeltaPosition, what: str, *, tolerant: bool) -> None:
    newest_read = at.version if at.index >= 0 else at.version - 1
    if newest_read > log.head:
        raise DataLossError(
            f"{what}: the table in {log.table} ends at version {log.head}, and the checkpoint has read "
            f"version {newest_read}: an older copy of the table was restored.",
            lost=f"Versions {log.head + 1} to {newest_read} are missing in the table; "
            "this stream has read them.",
            fix="restore the newest copy, or rebuild this stream from the table with a new checkpoint.",
            code="source-table-restored",
        )
    following = [version for version in log.written if version >= at.version]
    first = following[0] if following else log.head + 1
    if first > at.version and not tolerant:
        raise DataLossError(
            f"{what}: the log of {log.table} continues with version {first}, and the checkpoint with "
            f"version {at.version}: the log's cleanup was faster than this stream.",
            lost=f"Versions {at.version} to {first - 1} can no longer be read one by one.",
            fix="rebuild this stream with a new checkpoint, and raise the table's property "
            "delta.logRetentionDuration.",
            code="source-log-removed",
        )


def _first_id(table: TableRef) -> str | None:
    first = table.log.iter_actions(0) or ()
    return next((action["metaData"]["id"] for action in first if "metaData" in action), None)

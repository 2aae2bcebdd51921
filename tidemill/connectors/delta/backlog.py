"""The backlog in a Delta table: the commits of its log from the checkpoint's version on.

Only names are listed and only commits that the stream has not read are opened, up to the first with files that
the stream would read (Delta protocol, "Add File and Remove File": `dataChange`; "Add CDC File"). Compactions and
commits without files do not count, although Spark's offset would move past them.

Delta's offset is (version, index). Index -1 stands for a version of which nothing was read, and index i for a
version of which the files 0 to i were read. A reader that has read everything is at (head + 1, -1); a reader of
the change data feed stays at (head, last file) where the head has change files.
"""

import json
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemill.checkpoint import SourceOffset
from tidemill.connectors.backlog import Backlog, Unread
from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.delta.rows import bytes_added, rows_added
from tidemill.definitions.run_when import Amount, moment
from tidemill.errors import DataLossError, DefinitionError, TerminalError
from tidemill.text.durations import parse_duration

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..+")
_DEFAULT_RETENTION = "30 days"
# Commits are removed once a day at most; a log with a shorter retention keeps them as long.
_SOONEST_CLEANUP_SECONDS = 6 * 3600
_MERGED_ROWS = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


@dataclass(frozen=True, slots=True)
class UnreadVersions(Unread):
    """Versions of a Delta table that are not read, or only in part.

    Attributes:
        folder: The table's folder.
        versions: The versions whose commit the log still has, ascending.
    """

    folder: Path
    versions: tuple[int, ...]

    def amount(self, count: int, *, times: bool) -> Amount:
        """Return the rows, bytes and times of their commits; they cost no round trip."""
        del count, times
        rows: list[int] = []
        sizes: list[int] = []
        written = []
        for version in self.versions:
            try:
                modified = (self.folder / "_delta_log" / f"{version:020d}.json").stat().st_mtime_ns
            except FileNotFoundError:
                continue
            added = list(_commit(self.folder, version))
            written.append(moment(modified // 1_000_000))
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
        guarded: Whether commits that removed rows stop the stream (run/guard.py); Spark itself skips them.
        accepted: Such commits that the user has accepted.
        snapshot: Whether a reader without an offset begins with a snapshot of the table.
    """

    changes: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    guarded: bool = False
    accepted: Collection[int] = ()
    snapshot: bool = False

    def option(self, name: str) -> str:
        """Return an option in lower case; empty where it is not set."""
        return next((value.lower() for key, value in self.options.items() if key.lower() == name), "")


@dataclass(frozen=True, slots=True)
class _Log:
    """The names in a table's log.

    Attributes:
        folder: The table's folder.
        versions: The versions that have a commit file, ascending.
        head: The newest version; -1 where there is no table.
    """

    folder: Path
    versions: list[int]
    head: int


def waiting_versions(
    folder: Path, offset: SourceOffset | None, *, what: str, reading: TableReading | None = None
) -> Backlog:
    """Return the versions of a table from the first unread one that changes data.

    Args:
        folder: The table's folder.
        offset: Delta's offset.
        what: A description of the source.
        reading: How the stream reads the table.

    Raises:
        TerminalError: The table is missing, is another one, or cannot be read.
        DataLossError: Its log no longer has the next version, or the table is older than the offset.
    """
    reading = reading or TableReading()
    at = DeltaPosition.of(offset)
    log = _log(folder, what)
    if at is None:
        return _before_the_first_batch(log, reading)
    if log.head < 0:
        raise TerminalError(
            f"{what}: the table in {folder} is missing; the checkpoint continues at its version {at.version}.",
            lost="Rows that were written to it after that version are lost unless it is restored.",
            fix="restore the table. A table that was recreated in its place needs a new checkpoint of this stream.",
        )
    _check_same_table(folder, at, what)
    if at.is_starting:  # it is in the snapshot that it began with: the rest waits
        return Backlog(
            max(1, log.head - at.version + 1),
            "versions",
            f"snapshot {at.version}",
            head=f"version {log.head}",
        )
    _check_continues(log, at, what, tolerant=reading.option("failondataloss") == "false")
    # A version of which the reader has read a file was not without data.
    following = [version for version in log.versions if version > at.version - (at.index < 0)]
    return _from(log, at.version, at.index, reading) or _without_data(log, following)


def _log(folder: Path, what: str) -> _Log:
    try:
        names = os.listdir(folder / "_delta_log")  # noqa: PTH208 - `Path` costs five times as much per name
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except OSError as error:
        raise TerminalError(
            f"{what}: the log of {folder} cannot be read: {error.strerror}.",
            fix="give this user the right to read it.",
        ) from None
    versions = sorted(int(match[1]) for name in names if (match := _COMMIT.fullmatch(name)))
    checkpoints = (int(match[1]) for name in names if (match := _CHECKPOINT.fullmatch(name)))
    return _Log(folder, versions, max([*versions, *checkpoints], default=-1))


def _before_the_first_batch(log: _Log, reading: TableReading) -> Backlog:
    start = reading.option("startingversion")
    if start or (not reading.snapshot and log.versions[:1] == [0]):
        return _from(log, int(start) if start.isdigit() else 0, -1, reading)
    # The snapshot may have no row that the log still shows, or none of those that it shows.
    from tidemill.storage.delta_log import open_table

    table = open_table(log.folder)
    head = f"version {log.head}"
    if table is None or not table.file_uris():
        return Backlog(0, "versions", head=head)
    return Backlog(log.head + 1, "versions", f"snapshot {log.head}", head=head)


def _from(log: _Log, first: int, index: int, reading: TableReading) -> Backlog:
    versions = [version for version in log.versions if version >= first]
    for position, version in enumerate(versions):
        read = index + 1 if version == first else 0
        if _has_unread_files(log.folder, version, read, reading):
            within = "within version" if read > 0 else "version"
            unread = versions[position:]
            return Backlog(
                len(unread),
                "versions",
                f"{within} {version}",
                head=f"version {log.head}",
                unread=UnreadVersions(log.folder, tuple(unread)),
            )
    return Backlog(0, "versions", head=f"version {log.head}")


def _without_data(log: _Log, versions: list[int]) -> Backlog:
    """Return the backlog of a reader that has read all data, from the versions after its position.

    The log's cleanup removes old commits, and a reader whose next commit is missing cannot continue, even if
    that commit had no data. A run moves the reader to the head, so it is due long before that.
    """
    head = f"version {log.head}"
    if not versions or _age_seconds(log.folder, versions[0]) < _SOONEST_CLEANUP_SECONDS:
        return Backlog(0, "versions", head=head)
    age, retention = _age_seconds(log.folder, versions[0]), _log_retention_seconds(log.folder)
    if age < retention / 4:
        return Backlog(0, "versions", head=head)
    detail = f"version {versions[0]} has no data, and is older than a quarter of the log's retention"
    return Backlog(len(versions), "versions", detail, head=head)


def _age_seconds(folder: Path, version: int) -> float:
    """Return the age of a commit; 0 where its file is missing."""
    try:
        return time.time() - (folder / "_delta_log" / f"{version:020d}.json").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _log_retention_seconds(folder: Path) -> float:
    """Return how long the table keeps its log (Delta protocol, `delta.logRetentionDuration`)."""
    from tidemill.storage.delta_log import open_table

    table = open_table(folder)
    declared = None if table is None else table.metadata().configuration.get("delta.logRetentionDuration")
    try:
        length = parse_duration(
            (declared or _DEFAULT_RETENTION).removeprefix("interval "), what="log retention"
        )
    except DefinitionError:  # in months, or in a form of its own
        length = parse_duration(_DEFAULT_RETENTION, what="log retention")
    return length.total_seconds()


def _has_unread_files(folder: Path, version: int, read: int, reading: TableReading) -> bool:
    """Return whether a commit has files after the first `read` ones, as Delta numbers them for this reader."""
    if version in reading.accepted:
        return False
    adds = removes = changes = 0
    no_row_merged = False
    for action in _commit(folder, version):
        adds += _is_data(action.get("add"))
        removes += _is_data(action.get("remove"))
        changes += "cdc" in action
        no_row_merged = no_row_merged or merged_no_row(action.get("commitInfo"))
        if reading.guarded and (removes or adds > read):
            return True  # a commit of many files is long, and its start is often enough
    if reading.changes:
        return (changes or (0 if no_row_merged else adds + removes)) > read
    if not removes or reading.option("ignorechanges") == "true":
        return adds > read
    if reading.option("skipchangecommits") == "true":
        return False
    # Anything else makes Spark stop with an error, which a run has to show.
    return adds > 0 or reading.option("ignoredeletes") != "true"


def _is_data(file: dict[str, Any] | None) -> bool:
    return file is not None and bool(file.get("dataChange"))


def merged_no_row(info: dict[str, Any] | None) -> bool:
    """Return whether a commit is a MERGE that changed no row: Delta leaves its files out of the change feed."""
    if info is None or info.get("operation") != "MERGE":
        return False
    metrics = info.get("operationMetrics", {})
    return all(metrics.get(name) == "0" for name in _MERGED_ROWS)


def _check_same_table(folder: Path, at: DeltaPosition, what: str) -> None:
    # The first commit decides in a moment; where it is missing or has another id, the table's state decides.
    if _first_id(folder) == at.reservoir_id:
        return
    from tidemill.storage.delta_log import open_table

    table = open_table(folder)
    now = None if table is None else str(table.metadata().id)
    if now != at.reservoir_id:
        raise TerminalError(
            f"{what}: the table in {folder} is another one (id {now}) than the checkpoint has read "
            f"(id {at.reservoir_id}): it was deleted and recreated.",
            lost="Rows that the old table got after the last run are lost unless it is restored.",
            fix="restore the old table, or rebuild this stream from the new one with a new checkpoint.",
        )


def _check_continues(log: _Log, at: DeltaPosition, what: str, *, tolerant: bool) -> None:
    newest_read = at.version if at.index >= 0 else at.version - 1
    if newest_read > log.head:
        raise DataLossError(
            f"{what}: the table in {log.folder} ends at version {log.head}, and the checkpoint has read "
            f"version {newest_read}: an older copy of the table was restored.",
            lost=f"Versions {log.head + 1} to {newest_read} are missing in the table; "
            "this stream has read them.",
            fix="restore the newest copy, or rebuild this stream from the table with a new checkpoint.",
        )
    following = [version for version in log.versions if version >= at.version]
    first = following[0] if following else log.head + 1
    if first > at.version and not tolerant:
        raise DataLossError(
            f"{what}: the log of {log.folder} continues with version {first}, and the checkpoint with "
            f"version {at.version}: the log's cleanup was faster than this stream.",
            lost=f"Versions {at.version} to {first - 1} can no longer be read one by one.",
            fix="rebuild this stream with a new checkpoint, and raise the table's property "
            "delta.logRetentionDuration.",
        )


def _commit(folder: Path, version: int) -> Iterator[dict[str, Any]]:
    """Yield the actions of a commit."""
    try:
        with (folder / "_delta_log" / f"{version:020d}.json").open(encoding="utf-8") as lines:
            for line in lines:
                if line.strip():
                    yield json.loads(line)
    except FileNotFoundError:
        return


def _first_id(folder: Path) -> str | None:
    return next((action["metaData"]["id"] for action in _commit(folder, 0) if "metaData" in action), None)

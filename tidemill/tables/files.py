"""The files of a Delta table on disk: how many there are, which could be fewer, and which nothing needs any more."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from tidemill.storage.delta_log import by_kind
from tidemill.storage.table_ref import TableRef

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from tidemill.storage.delta_log import DeltaLog

Part = Literal["commits", "snapshot", "log"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Something that needs a table from a version on.

    Attributes:
        version: The oldest version.
        who: What needs it, for people.
        of: What it needs: the `commits` from there on with the files that they name, the `snapshot` of that version,
            or only the `log`.
    """

    version: int
    who: str
    of: Part = "commits"


SMALL_BYTES = 64 * 1024 * 1024
"""Files below this size are compacted: opening one costs as much as reading some megabytes."""

MOST_SMALL_FILES = 4
"""A partition with fewer small files is left as it is, so that it is not rewritten for one that is new."""

_CHANGES = "_change_data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a table on disk.

    Attributes:
        files: Its data files, also those that its newest version does not have.
    """

    files: int
    bytes: int
    log_files: int


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file on disk.

    Attributes:
        name: Its path below the table.
        bytes: Its size.
        modified: When it was written, seconds since the epoch.
    """

    name: str
    bytes: int
    modified: float


def data_files(table: TableRef) -> Iterator[DataFile]:
    """Yield the Parquet files of a table, those of its change data feed included; deletion vectors are none."""
    for entry in table.store.walk(table.key):
        name = entry.key.removeprefix(f"{table.key}/")
        hidden = (part for part in name.split("/") if part.startswith((".", "_")) and part != _CHANGES)
        if name.endswith(".parquet") and not any(hidden):
            yield DataFile(name, entry.size, entry.modified)


def size_of(table: TableRef) -> Size:
    """Return the size of a table on disk."""
    files = list(data_files(table))
    log_files = sum(1 for entry in table.store.list(table.log.folder) if not entry.is_folder)
    return Size(files=len(files), bytes=sum(file.bytes for file in files), log_files=log_files)


def small_files(table: "DeltaTable") -> int:
    """Return the small files in the partitions of a table that have many of them."""
    actions = table.get_add_actions()
    sizes = zip(actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), strict=True)
    partitions = Counter(str(path).rpartition("/")[0] for path, size in sizes if int(str(size)) < SMALL_BYTES)
    return sum(count for count in partitions.values() if count >= MOST_SMALL_FILES)


def removable(
    table: TableRef, opened: "DeltaTable", needs: "Sequence[Need]", since: datetime
) -> list[DataFile]:
    """Return the files on disk that the newest version does not have and nothing needs.

    `DeltaTable.vacuum(full=True, keep_versions=...)` cannot do this (measured on deltalake 1.6.6): it removes the files
    of the change data feed, also those of the versions that it keeps, which readers of changes then miss.

    Args:
        opened: Its newest version.
        needs: What needs older versions.
        since: The moment to which the table may be rewound; younger files may belong to a write in progress.
    """
    needed = _active(opened)
    for need in needs:
        if need.of == "snapshot":
            snapshot = table.open(need.version)
            needed |= set() if snapshot is None else _active(snapshot)
    first = min((need.version for need in needs if need.of == "commits"), default=None)
    limit = int(since.timestamp() * 1000)
    for version in table.log.versions():
        actions = by_kind(table.log.actions(version) or [])
        is_unread = first is not None and version >= first
        is_recent = any(kind == "commitInfo" and info.get("timestamp", 0) >= limit for kind, info in actions)
        for kind, file in actions:
            reads = kind in ("add", "cdc") or (kind == "remove" and file.get("dataChange"))
            if (is_unread and reads) or (is_recent and kind in ("remove", "cdc")):
                needed |= _names(file["path"])
    return [
        file for file in data_files(table) if file.name not in needed and file.modified < since.timestamp()
    ]


def _active(table: "DeltaTable") -> set[str]:
    paths = table.get_add_actions().column("path").to_pylist()
    return {name for path in paths for name in _names(str(path))}


def _names(path: str) -> set[str]:
    """Return the names on disk that a path in the log can stand for: special characters are encoded there."""
    return {path, unquote(path)}


_VERSIONED = re.compile(
    r"\.?([0-9]{20})\.(json|crc|checkpoint\.parquet)(\.crc)?|\.?[0-9]{20}\.([0-9]{20})\.compacted\.json(\.crc)?",
    re.ASCII,
)
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\.parquet", re.ASCII)


def obsolete_log_files(table: "TableRef", needed: int) -> list[str]:
    """Return the keys of the files of a table's log that no version from `needed` on needs, oldest first.

    A version is read from a checkpoint and the commits after it, so the newest checkpoint that is not after `needed` is
    kept with everything after it. A log with checkpoints in parts, or of version 2, is left as it is.

    Args:
        needed: The oldest version that is needed.
    """
    log = table.log
    names = log.store.names(log.folder)
    if any(".checkpoint." in name and not _VERSIONED.fullmatch(name) for name in names):
        return []
    newest = _newest_checkpoint(log)
    if newest is None:
        return []
    checkpoints = [int(match[1]) for name in names if (match := _CHECKPOINT.fullmatch(name))]
    first = max((version for version in checkpoints if version <= min(needed, newest)), default=None)
    if first is None or not _is_readable(table, first):
        return []
    versions = ((match, name) for name in names if (match := _VERSIONED.fullmatch(name)))
    old = [(int(match[1] or match[4]), name) for match, name in versions]
    return [f"{log.folder}/{name}" for version, name in sorted(old) if version < first]


def _newest_checkpoint(log: "DeltaLog") -> int | None:
    """Return the version that readers of the log begin with."""
    try:
        return int(json.loads(log.store.read(f"{log.folder}/_last_checkpoint"))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_readable(table: "TableRef", version: int) -> bool:
    """Return whether a version can be read: its checkpoint is about to be its only record."""
    from deltalake.exceptions import DeltaError

    try:
        opened = table.open(version)
        return opened is not None and opened.get_add_actions() is not None
    except (DeltaError, OSError):
        return False

"""A copy of a checkpoint up to one batch, under a query id of its own: a rewound stream continues from it.

A new id is needed because a Delta table keeps the transactions of batches that a RESTORE takes back: under the old
id, it would skip the batches that are repeated, and their rows would be lost.
"""

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tidemill.checkpoint import OffsetEntry, SourceFile, commit_batches, offset_batches, read_offset
from tidemill.checkpoint.format.folder import Folder
from tidemill.checkpoint.format.source_log import (
    LogEntry,
    log_entries,
    needed_entries,
    read_entry,
    source_folder,
)
from tidemill.checkpoint.format.state_files import StateFile
from tidemill.connectors.files.position import FilePosition

_METADATA_OF_BATCHES = "v2"  # transformWithState keeps the absolute paths of its schemas there
_COMPACT_INTERVAL = 10  # spark.sql.streaming.fileSource.log.compactInterval


def batches_to_copy(checkpoint: Path) -> list[int]:
    """Return the committed batches up to which a checkpoint can be copied: Spark keeps the last hundred.

    Args:
        checkpoint: The checkpoint's folder.
    """
    return sorted(set(offset_batches(checkpoint)) & set(commit_batches(checkpoint)))


def keeps_paths(checkpoint: Path) -> bool:
    """Return whether the state has absolute paths into its own checkpoint, so that no copy can be continued."""
    return any((checkpoint / "state").glob(f"*/_metadata/{_METADATA_OF_BATCHES}"))


def copy_until(checkpoint: Path, to: Path, batch: int, query_id: str) -> None:
    """Copy a checkpoint up to a batch.

    Files are linked where the file system can: Spark never changes a file that it has written.

    Args:
        checkpoint: The checkpoint.
        to: The folder of the copy; what is there is removed.
        batch: The last batch of the copy, one of `batches_to_copy`.
        query_id: The query id of the copy.
    """
    if to.exists():
        shutil.rmtree(to)
    to.mkdir(parents=True)
    (to / "metadata").write_text(json.dumps({"id": query_id}, separators=(",", ":")), encoding="utf-8")
    entry = read_offset(checkpoint, batch)
    for path in _files(checkpoint):
        where = path.relative_to(checkpoint)
        if _is_kept(where, batch, entry):
            (to / where).parent.mkdir(parents=True, exist_ok=True)
            _link(path, to / where)
    for source in entry.sources:
        if (position := FilePosition.of(source)) is not None:
            _write_log(checkpoint, to, source.key, position.entry)


def _is_kept(where: Path, batch: int, entry: OffsetEntry) -> bool:
    """Return whether a file belongs to the copy as it is."""
    top, name = where.parts[0], where.name
    named = name[1:-4] if name.startswith(".") and name.endswith(".crc") else name
    if top in (where.name, named) or named.startswith(".") or named.endswith(".tmp"):
        return False  # the query's own metadata, and what a killed attempt left behind
    if top in ("offsets", "commits"):
        return named.isdigit() and int(named) <= batch
    if top == "sources":
        source = entry.source(where.parts[1])
        return FilePosition.of(source) is None
    if top == "state" and (file := StateFile.parse(named)) is not None:
        return file.version <= batch + 1
    return True


def _write_log(checkpoint: Path, to: Path, key: str, last: int) -> None:
    """Write the log of a file source up to an entry.

    Spark removes entries once a compact one repeats them, so the log is written again from the files that it has.
    """
    folder, log = Folder.at(checkpoint), source_folder(key)
    by_entry: dict[int, list[SourceFile]] = defaultdict(list)
    for entry in needed_entries(log_entries(folder.names(log))):
        for file in read_entry(folder, f"{log}/{entry.name}"):
            if file.entry <= last:
                by_entry[file.entry].append(file)
    compact = (last + 1) // _COMPACT_INTERVAL * _COMPACT_INTERVAL - 1
    (to / log).mkdir(parents=True, exist_ok=True)
    if compact >= 0:
        files = [file for number in sorted(by_entry) if number <= compact for file in by_entry[number]]
        write_source_log(to / log, LogEntry(compact, compact=True), files)
    for number in range(compact + 1, last + 1):
        write_source_log(to / log, LogEntry(number, compact=False), by_entry[number])


def write_source_log(folder: Path, entry: LogEntry, files: list[SourceFile]) -> None:
    """Write one entry of a file source's log, as Spark writes it.

    Args:
        folder: The folder of the log.
        entry: The entry.
        files: Its files.
    """
    lines = [
        json.dumps(
            {"path": file.path, "timestamp": file.timestamp_ms, "batchId": file.entry},
            ensure_ascii=False,
            separators=(",", ":"),
        )
        for file in files
    ]
    (folder / entry.name).write_text("\n".join(["v1", *lines]), encoding="utf-8")


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            yield Path(parent) / name


def _link(path: Path, to: Path) -> None:
    try:
        to.hardlink_to(path)
    except OSError:  # another file system, or one without links
        shutil.copy2(path, to)

"""The only writer of a checkpoint's files except Spark itself.

Nothing else writes the checkpoint meanwhile: its query does not run, and the lease of its stream is held. Each file is
created or replaced as a whole. What an edit replaces or removes goes to the control folder first.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from tidemill.checkpoint.format.commits import WATERMARK
from tidemill.checkpoint.format.folder import Checkpoint, Folder
from tidemill.checkpoint.format.hadoop_checksum import sidecar
from tidemill.checkpoint.format.logs import commit_batches, offset_batches, offset_entry
from tidemill.checkpoint.format.offsets import OffsetEntry, Offsets
from tidemill.checkpoint.format.source_log import (
    LogEntry,
    SourceFile,
    log_entries,
    needed_entries,
    read_entry,
    source_folder,
)
from tidemill.checkpoint.format.state_files import StateFile
from tidemill.checkpoint.tail import Tail
from tidemill.storage.side_by_side import for_each
from tidemill.storage.store import Store

COPIES = "repairs"
"""The folder of the copies, below the control folder."""

# A restart plans from the last entry of the offset log, and reads the one before it as well.
_ENTRIES_OF_A_RESTART = 2
_COMPACT_INTERVAL = 10  # spark.sql.streaming.fileSource.log.compactInterval
_COMMIT = f'v1\n{{"{WATERMARK}":0}}'  # of a batch that moved no watermark
_METADATA_OF_BATCHES = "v2"  # transformWithState keeps the absolute paths of its schemas there
_SOURCES_HAVE_NAMES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


def batches_to_copy(checkpoint: Checkpoint) -> list[int]:
    """Return the committed batches up to which a checkpoint can be copied: Spark keeps the last hundred."""
    return sorted(set(offset_batches(checkpoint)) & set(commit_batches(checkpoint)))


def keeps_paths(checkpoint: Checkpoint) -> bool:
    """Return whether the state has absolute paths into its own checkpoint, so that no copy can be continued."""
    folder = Folder.at(checkpoint)
    operators = (f"state/{name}/_metadata" for name in folder.names("state"))
    return any(_METADATA_OF_BATCHES in folder.names(metadata) for metadata in operators)


class CheckpointWriter:
    """Writes the files of one checkpoint.

    Args:
        checkpoint: Its files.
        control: The control files of its stream, for copies; None for a checkpoint that is new.
        reason: The reason, in one word; part of the name of the folder with the copies.
    """

    def __init__(self, checkpoint: Store, control: Store | None = None, reason: str = "repair") -> None:
        began = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        self._files = checkpoint
        self._name = checkpoint.uri().rpartition("/")[2]
        self._all_copies = None if control is None else control.below(COPIES)
        self._copies = self._all_copies and self._all_copies.below(f"{self._name}-{began}-{reason}")

    @property
    def copies(self) -> Store | None:
        """The copies; None where nothing was replaced or removed."""
        return self._copies if self._copies and self._copies.names() else None

    # A checkpoint that is new.

    def begin(self, query_id: str) -> None:
        """Write the query id, if there is none."""
        self._create("metadata", json.dumps({"id": query_id}, separators=(",", ":")))

    def write_first_batch(
        self, like: Checkpoint, batch: int, offsets: Offsets, *, is_committed: bool = False
    ) -> None:
        """Plan the first batch, if none is planned: Spark then reads exactly up to its offsets.

        Args:
            like: The checkpoint whose settings it gets.
            batch: The batch of that checkpoint.
            offsets: Where the batch ends in each source.
            is_committed: Whether the batch counts as done, so that Spark continues after it.
        """
        self._create("offsets/0", _entry_like(Folder.at(like), batch, offsets, batchWatermarkMs=0))
        if is_committed:
            self._create("commits/0", _COMMIT)

    def write_initial_offsets(self, name: str, offsets: str) -> None:
        """Decide where a source begins; a decision that is there stays.

        Args:
            name: The source's name.
            offsets: The first offset of each partition, as Spark writes it.
        """
        self._create(f"{source_folder(name)}/0", f"\0v1\n{offsets}")

    def write_source_log(self, name: str, entry: LogEntry, files: Iterable[SourceFile]) -> None:
        """Write one entry of a file source's log, as Spark writes it.

        Args:
            name: The source's name.
            entry: The entry.
            files: Its files.
        """
        lines = (
            _json({"path": file.path, "timestamp": file.timestamp_ms, "batchId": file.entry})
            for file in files
        )
        self._replace(f"{source_folder(name)}/{entry.name}", "\n".join(["v1", *lines]))

    def copy_until(self, checkpoint: Checkpoint, batch: int, query_id: str, logs: Mapping[str, int]) -> None:
        """Copy another checkpoint up to a batch, under a query id of its own; what is in the folder is removed.

        A new id is needed because a Delta table keeps the transactions of batches that a RESTORE takes back: under
        the old id, it would skip the batches that are repeated, and their rows would be lost. Files are linked where
        the file system can: Spark never changes a file that it has written.

        Args:
            checkpoint: The other checkpoint.
            batch: The last batch of the copy, one of `batches_to_copy`.
            query_id: The query id of the copy.
            logs: The last entry of the log of each file source in that batch.
        """
        other = Folder.at(checkpoint)
        self.clear()
        self.begin(query_id)
        self._copy_files(other, lambda where: where if _is_kept(where, batch, logs) else None)
        for name, last in logs.items():
            self._write_log(other, name, last)

    def copy_named(self, checkpoint: Checkpoint, names: Mapping[str, str]) -> None:
        """Copy a checkpoint of plain Spark, with names for its sources; what is in the folder is removed.

        Args:
            checkpoint: The other checkpoint.
            names: The name of each source by its position.
        """

        def named(where: str) -> str | None:
            top, _, rest = where.partition("/")
            position, _, name = rest.partition("/")
            if name.endswith(".tmp") or top == "offsets":
                return None
            return f"sources/{names.get(position, position)}/{name}" if top == "sources" else where

        other = Folder.at(checkpoint)
        self.clear()
        self._copy_files(other, named)
        for batch in other.numbers("offsets"):
            text = other.read(f"offsets/{batch}").decode()
            self._create(f"offsets/{batch}", _with_names(text, offset_entry(other, batch), names))

    def clear(self) -> None:
        """Remove the checkpoint, without a copy: what an attempt that was killed has left behind."""
        self._files.delete([file.key for file in self._files.walk()])

    # A checkpoint that a stream continues.

    def schedule_batch(
        self, tail: Tail, ends: Mapping[str, str] | None = None, *, watermark_ms: int | None = None
    ) -> int:
        """Write the offsets entry of the next batch, so that the next start runs exactly this batch.

        The entry repeats the last offsets under the watermark of the last commit. By itself that is the no-data batch
        that a kill prevented: without rows, it emits what the watermark has closed. A copy goes to the control folder.

        Args:
            tail: The end of the checkpoint.
            ends: Where the batch ends in sources that it reads, by source name, as JSON.
            watermark_ms: Its watermark, milliseconds since the epoch; None for that of the last commit.

        Returns:
            The batch id.

        Raises:
            ValueError: The checkpoint has no committed batch.
            FileExistsError: The entry exists.
        """
        if tail.latest_offset is None or tail.latest_commit is None:
            raise ValueError("a checkpoint without a committed batch has no next batch")
        last = tail.latest_offset
        if watermark_ms is None:
            watermark_ms = max(last.watermark_ms, tail.latest_commit.next_watermark_ms or 0)
        content = _entry_like(
            Folder.at(self._files),
            last.batch_id,
            last.offsets | dict(ends or {}),
            batchWatermarkMs=watermark_ms,
            batchTimestampMs=int(time.time() * 1000),
        )
        batch = last.batch_id + 1
        if self._all_copies is not None:
            self._all_copies.replace(f"{self._name}-offsets-{batch}", content.encode())
        self._files.create(f"offsets/{batch}", content.encode())
        return batch

    def commit_batch(self, batch: int) -> None:
        """Count a batch that `schedule_batch` planned as done, because another query has written its rows."""
        self._create(f"commits/{batch}", _COMMIT)

    def raise_watermark(self, tail: Tail, watermark_ms: int) -> None:
        """Raise the watermark that the last commit leaves for the next batch; what the commit had needs no copy.

        Args:
            tail: The end of the checkpoint, whose last batch is committed.
            watermark_ms: The watermark, milliseconds since the epoch.

        Raises:
            ValueError: The checkpoint has no committed batch.
        """
        if tail.latest_commit is None:
            raise ValueError("a checkpoint without a committed batch has no next batch")
        where = f"commits/{tail.latest_commit.batch_id}"
        version, fields, *_ = self._files.read(where).decode().split("\n")
        self._replace_unchecked(
            where, "\n".join([version, _json(json.loads(fields) | {WATERMARK: watermark_ms})])
        )

    def change_offsets(self, change: Callable[[Offsets], Offsets]) -> None:
        """Change the offsets in the entries that a restart reads."""
        folder = Folder.at(self._files)
        for batch in folder.numbers("offsets")[-_ENTRIES_OF_A_RESTART:]:
            where = f"offsets/{batch}"
            before = offset_entry(folder, batch).offsets
            after = change(before)
            if after != before:
                header = folder.read(where).decode().split("\n")[:2]
                self._edit(folder, where, "\n".join([*header, *_offset_lines(after)]))

    def change_source_log(self, name: str, address: Callable[[str], str]) -> None:
        """Change the addresses of the files in a file source's log.

        Args:
            name: The source's name.
            address: The new address of a file.
        """
        folder = Folder.at(self._files)
        for entry in log_entries(folder.names(source_folder(name))):
            where = f"{source_folder(name)}/{entry.name}"
            before = b"".join(folder.blocks(where)).decode()
            after = "\n".join(_with_address(line, address) for line in before.split("\n"))
            if after != before:
                self._edit(folder, where, after)

    def copy_source(self, name: str, to: str) -> None:
        """Copy what the checkpoint has of a source to a source of another name; what that one has is archived."""
        files = self._files.walk(source_folder(name))
        if files:
            self.archive_source(to)
        from_folder, to_folder = source_folder(name), source_folder(to)
        for_each(
            self._files,
            lambda key: self._files.copy(key, key.replace(from_folder, to_folder, 1)),
            [file.key for file in files],
        )

    def archive_source(self, name: str) -> None:
        """Move what the checkpoint has of a source, except its offsets, to the copies."""
        keys = [file.key for file in self._files.walk(source_folder(name))]
        for_each(self._files, self._copy_away, keys)
        self._files.delete(keys)

    def _edit(self, folder: Folder, where: str, content: str) -> None:
        self._copy_away(where)
        if folder.has(_checksum(where)):
            self._copy_away(_checksum(where))
        self._replace_unchecked(where, content)

    def _replace_unchecked(self, where: str, content: str) -> None:
        """Replace a file; Hadoop refuses one that its checksum file does not fit, and needs none."""
        self._files.delete([_checksum(where)])
        self._replace(where, content)

    def _copy_away(self, where: str) -> None:
        if self._copies is None:
            raise ValueError("a writer without a control folder changes no file")
        self._files.copy(where, where, self._copies)

    def _copy_files(self, other: Folder, to: Callable[[str], str | None]) -> None:
        files = ((item.key, to(item.key)) for item in other.walk() if item.kind == "file")
        copied = [(key, target) for key, target in files if target is not None]
        slower = other.store if self._files.has_folders else self._files
        for_each(slower, lambda pair: other.store.copy(pair[0], pair[1], self._files), copied)

    def _write_log(self, other: Folder, name: str, last: int) -> None:
        """Write the log of a file source up to an entry.

        Spark removes entries once a compact one repeats them, so the log is written again from the files it has.
        """
        log = source_folder(name)
        by_entry: dict[int, list[SourceFile]] = defaultdict(list)
        for entry in needed_entries(log_entries(other.names(log))):
            for file in read_entry(other, f"{log}/{entry.name}"):
                by_entry[file.entry].append(file)
        compact = (last + 1) // _COMPACT_INTERVAL * _COMPACT_INTERVAL - 1
        if compact >= 0:
            files = [file for number in sorted(by_entry) if number <= compact for file in by_entry[number]]
            self.write_source_log(name, LogEntry(compact, compact=True), files)
        for number in range(compact + 1, last + 1):
            self.write_source_log(name, LogEntry(number, compact=False), by_entry[number])

    def _create(self, where: str, content: str) -> None:
        with suppress(FileExistsError):  # another attempt has written it
            self._files.create(where, content.encode())

    def _replace(self, where: str, content: str) -> None:
        self._files.replace(where, content.encode())


def _checksum(where: str) -> str:
    folder, _, name = where.rpartition("/")
    return f"{folder}/{sidecar(name)}"


def _entry_like(folder: Folder, batch: int, offsets: Offsets, **changed: int) -> str:
    """Return an entry of the offset log with the settings of another one."""
    version, fields, *_ = folder.read(f"offsets/{batch}").decode().split("\n")
    return "\n".join([version, _json(json.loads(fields) | changed), *_offset_lines(offsets)])


def _offset_lines(offsets: Offsets) -> list[str]:
    return [f"{name}:{'-' if offset is None else offset}" for name, offset in offsets.items()]


def _is_kept(where: str, batch: int, logs: Mapping[str, int]) -> bool:
    """Return whether a file belongs to the copy of a checkpoint up to a batch as it is."""
    top, *parts = where.split("/")
    name = where.rpartition("/")[2]
    named = name[1:-4] if name.startswith(".") and name.endswith(".crc") else name
    if not parts or named.startswith(".") or named.endswith(".tmp"):
        return False  # the query's own metadata, and what a killed attempt left behind
    if top in ("offsets", "commits"):
        return named.isdigit() and int(named) <= batch
    if top == "sources":
        return parts[0] not in logs
    if top == "state" and (file := StateFile.parse(named)) is not None:
        return file.version <= batch + 1
    return True


def _with_names(text: str, entry: OffsetEntry, names: Mapping[str, str]) -> str:
    """Return an entry of the offset log in version 2, whose sources have names."""
    if entry.version != 1:
        return text
    fields = json.loads(text.split("\n")[1])
    fields["conf"] = {**fields.get("conf", {}), _SOURCES_HAVE_NAMES: "true"}
    fields.setdefault("sourceMetadataInfo", {})
    offsets = {names[position]: offset for position, offset in entry.offsets.items()}
    return "\n".join(["v2", _json(fields), *_offset_lines(offsets)])


def _with_address(line: str, address: Callable[[str], str]) -> str:
    if not line.startswith("{"):  # the version
        return line
    file = json.loads(line)
    path = address(file["path"])
    return line if path == file["path"] else _json(file | {"path": path})


def _json(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))

"""The log of the files in a folder, in the format of Spark's own file sink: a reader of Spark sees these files only.

`_spark_metadata` in the folder has one entry per published batch: `0`, `1` and so on without a gap. Each tenth entry,
such as `9.compact`, repeats those before it, and a reader starts with the newest of them. Next to the fields that Spark
reads, each file has the batch that wrote it.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from tidemill.connectors.files.addresses import file_address, plain_path
from tidemill.storage.store import Entry, Store

SINK_LOG = "_spark_metadata"
_VERSION = "v1"
_COMPACT = ".compact"
# The default of `spark.sql.streaming.fileSink.log.compactInterval`, by which a reader looks for compacted entries.
_INTERVAL = 10
# Of Hadoop's local file system. Spark plans its tasks by the sizes of the files.
_BLOCK_SIZE = 32 << 20

_Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Written:
    """What the log records of each file, next to what Spark reads.

    Attributes:
        query_id: The query of its batch.
        batch_id: Its batch.
        format: Its format.
        partition_by: The columns that the folder is partitioned by.
    """

    query_id: str
    batch_id: int
    format: str
    partition_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileLog:
    """The log of one folder, which several streams may write.

    Attributes:
        folder: The files of the folder.
    """

    folder: Store

    def exists(self) -> bool:
        """Return whether the folder has a log."""
        return bool(self._ids())

    def begin(self) -> None:
        """Write an entry without files, unless there is a log: readers of a folder without one see all its files."""
        if not self.exists():
            with suppress(FileExistsError):
                self.folder.create(_key(0), _VERSION.encode())

    def paths(self) -> list[str]:
        """Return the absolute paths of the published files."""
        return [plain_path(line["path"]) for lines in self._entries(self._newest()) for line in lines]

    def newest_file(self) -> _Line | None:
        """Return what the log has of a file of the newest batch; None where it has no files."""
        return next((line for lines in self._entries(self._newest()) for line in reversed(lines)), None)

    def last_batch(self, query_id: str) -> int | None:
        """Return the newest batch of a query that has published files; None where none has."""
        return self._last_batch(query_id, self._newest())

    def publish(self, files: Sequence[Entry], written: Written, *, retention: timedelta | None) -> None:
        """Publish the files of a batch, all of them at once, unless a batch of the query as new as this has been.

        Of several writers of the same batch, one publishes. An entry follows from the very listing that was searched
        for the batch, and is created exclusively.

        Args:
            files: The files, at least one, below the folder.
            written: What is recorded of each of them.
            retention: A compacted entry leaves out files that are older; None: it has all files.
        """
        lines = [_line(self.folder, file, written) for file in files]
        while True:
            newest = self._newest()
            last = self._last_batch(written.query_id, newest)
            # Also after an own entry: one that was created below a compacted entry is not seen by any reader.
            if last is not None and last >= written.batch_id:
                return
            entry = newest + 1
            earlier = self._earlier(newest, retention) if _is_compacted(entry) else []
            content = "\n".join([_VERSION, *map(json.dumps, [*earlier, *lines])])
            with suppress(FileExistsError):
                self.folder.create(_key(entry), content.encode())
                if _is_compacted(entry):
                    # Readers that began before this entry start with the compacted one before it.
                    self.folder.delete(_key(old) for old in self._ids() if old < entry - _INTERVAL)

    def _ids(self) -> list[int]:
        names = (name.removesuffix(_COMPACT) for name in self.folder.names(SINK_LOG))
        return [int(name) for name in names if name.isdecimal()]

    def _newest(self) -> int:
        return max(self._ids(), default=-1)

    def _entries(self, newest: int) -> Iterator[list[_Line]]:
        """Return the files of the entries that make up the log at an entry, the newest first."""
        first = max(0, (newest + 1) // _INTERVAL * _INTERVAL - 1)
        for entry in range(newest, first - 1, -1):
            _, *lines = self.folder.read(_key(entry)).decode().split("\n")
            yield [json.loads(line) for line in lines]

    def _last_batch(self, query_id: str, newest: int) -> int | None:
        for lines in self._entries(newest):
            written = [line["tidemill"] for line in lines if "tidemill" in line]
            batches: list[int] = [one["batch_id"] for one in written if one["query_id"] == query_id]
            if batches:
                return max(batches)
        return None

    def _earlier(self, newest: int, retention: timedelta | None) -> list[_Line]:
        oldest = 0 if retention is None else (time.time() - retention.total_seconds()) * 1000
        entries = reversed(list(self._entries(newest)))
        return [line for lines in entries for line in lines if line["modificationTime"] >= oldest]


def _is_compacted(entry: int) -> bool:
    return (entry + 1) % _INTERVAL == 0


def _key(entry: int) -> str:
    return f"{SINK_LOG}/{entry}{_COMPACT if _is_compacted(entry) else ''}"


def _line(folder: Store, file: Entry, written: Written) -> _Line:
    return {
        "path": file_address(folder.uri(file.key)),
        "size": file.size,
        "isDir": False,
        "modificationTime": int(file.modified * 1000),
        "blockReplication": 1,
        "blockSize": _BLOCK_SIZE,
        "action": "add",
        "tidemill": asdict(written),
    }

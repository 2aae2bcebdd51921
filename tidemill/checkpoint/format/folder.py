"""The only reader of a checkpoint's files, in whatever store they are.

The content of the folder is untrusted data: reads are bounded, only regular files are opened, and a symbolic
link that leaves the folder is refused rather than followed.
"""

import errno
import io
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, BinaryIO, cast

from tidemill.checkpoint.format.errors import CheckpointFormatError, FileAbsentError
from tidemill.checkpoint.format.logfile import batch_number
from tidemill.storage.local_store import LocalStore, local_path
from tidemill.storage.side_by_side import for_each
from tidemill.storage.store import Entry, NotAFileError, OutsideError, Store

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_FILE_BYTES = 64 << 20
"""The size limit of a file that Spark itself reads at once (an offset, a commit, a schema)."""

MAX_DEPTH = 8
"""The deepest level of a checkpoint that is read; Spark's own files are at most six levels down."""

_BLOCK = 1 << 20
# A start reads the newest entries of the logs several times.
_KEPT_FILES, _KEPT_BYTES = 256, 64 << 10
# Of a store whose listings have versions, the process keeps files of the logs: at most 32 MB.
_RECENT_FILES, _SMALL_BYTES = 4096, 8 << 10


@dataclass(frozen=True, slots=True)
class Folder:
    """A read-only folder; every path is relative to it, with `/` between the names.

    Attributes:
        store: Its files.
        address: The path as the caller gave it, or the address of the store.

    Listings and small files are cached: one object sees each of them at one moment. In a store without folders one
    listing has everything.
    """

    store: Store
    address: str
    _contents: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    _names: dict[str, Sequence[str]] = field(default_factory=dict, repr=False, compare=False)
    _numbers: dict[str, list[int]] = field(default_factory=dict, repr=False, compare=False)
    _items: dict[str, Mapping[str, Entry]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def at(cls, checkpoint: "Checkpoint") -> "Folder":
        """Return the folder of a checkpoint."""
        if isinstance(checkpoint, Folder):
            return checkpoint
        if isinstance(checkpoint, str | os.PathLike):
            store = LocalStore(local_path(os.fspath(checkpoint), field="The checkpoint"))
            return cls(store.confined(), os.fspath(checkpoint))
        return cls(checkpoint.confined(), checkpoint.uri())

    def exists(self) -> bool:
        """Return whether there is anything in the folder."""
        return bool(self.names(""))

    def has(self, path: str) -> bool:
        """Return whether there is a file, or anything else, at a path; raises as `names` does."""
        folder, _, name = path.rpartition("/")
        return name in self.names(folder)

    def names(self, folder: str) -> Sequence[str]:
        """Return the unordered names in a folder; none if the folder does not exist.

        Raises:
            CheckpointFormatError: The folder is outside the checkpoint or unreadable.
        """
        if not self.store.has_folders:
            return list(self._items_of(folder))
        if folder not in self._names:
            with _translated(folder):
                self._names[folder] = self.store.names(folder)
        return self._names[folder]

    def numbers(self, folder: str) -> list[int]:
        """Return the names in a folder that are numbers, ascending; raises as `names` does."""
        if folder not in self._numbers:
            digits = [name for name in self.names(folder) if name.isdigit()]
            numbers = (batch_number(name) for name in digits)
            self._numbers[folder] = sorted(number for number in numbers if number is not None)
        return self._numbers[folder]

    def items(self, folder: str) -> Collection[Entry]:
        """Return the entries of a folder by name; none if it does not exist; raises as `names` does."""
        return self._items_of(folder).values()

    def item(self, path: str) -> Entry | None:
        """Return the entry at a path; None if the path does not exist; raises as `names` does."""
        folder, _, name = path.rpartition("/")
        return self._items_of(folder).get(name)

    def walk(self, folder: str = "", depth: int = MAX_DEPTH) -> Iterator[Entry]:
        """Yield everything below a folder that is not a folder itself; links to folders are not followed.

        Args:
            folder: The folder to start from.
            depth: The number of levels to go down; Spark writes nothing deeper.

        Raises:
            CheckpointFormatError: A folder is unreadable.
        """
        for item in self.items(folder):
            if item.is_folder and depth > 0:
                yield from self.walk(item.key, depth - 1)
            else:
                yield item

    def read(self, path: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the content of a file.

        Raises:
            FileAbsentError: The file does not exist.
            CheckpointFormatError: The file is larger than `limit`, not a regular file, outside the checkpoint,
                or unreadable.
        """
        data = self.read_range(path, 0, limit + 1)
        if len(data) > limit:
            raise CheckpointFormatError(path, f"It is larger than {limit} bytes.", code="file-too-large")
        return data

    def ends(self, path: str, size: int) -> tuple[bytes, bytes]:
        """Return the first bytes of a file, and the last bytes if it is longer; raises as `read` does."""
        head = self.read_range(path, 0, size + 1)
        return head[:size], self.read_range(path, -size, size) if len(head) > size else b""

    def blocks(self, path: str) -> Iterator[bytes]:
        """Yield a file of any size in blocks of a megabyte; raises as `read` does, except for the size."""
        start, block = 0, self.read_range(path, 0, _BLOCK)
        while block:
            yield block
            start += len(block)
            block = self.read_range(path, start, _BLOCK) if len(block) == _BLOCK else b""

    def open(self, path: str) -> BinaryIO:
        """Return a file of any size for seeking; raises as `read` does, except for the size."""
        item = self.item(path)
        if item is None:
            raise FileAbsentError(path)
        return cast("BinaryIO", io.BufferedReader(_SeekableFile(self, item), min(_BLOCK, item.size + 1)))

    def _items_of(self, folder: str) -> Mapping[str, Entry]:
        if folder in self._items:
            return self._items[folder]
        with _translated(folder):
            if self.store.has_folders:
                self._items[folder] = {item.name: item for item in self.store.list(folder)}
            elif not self._items:
                self._items.update(_by_folder(self.store.walk()))
        return self._items.get(folder, {})

    def fetch(self, paths: Iterable[str]) -> None:
        """Read small files side by side where each one costs a round trip, before they are read one by one."""
        if self.store.has_folders:
            return
        items = (self.item(path) for path in paths)
        wanted = [item.key for item in items if item is not None and item.size < _KEPT_BYTES]

        def keep(path: str) -> None:
            with suppress(CheckpointFormatError):  # whoever reads it meets the same error
                self.read_range(path, 0, _KEPT_BYTES)

        for_each(self.store, keep, wanted)

    def _small(self, path: str) -> Entry | None:
        """Return a small file whose version the listing has; None for other files, and before the listing."""
        folder, _, name = path.rpartition("/")
        item = self._items.get(folder, {}).get(name)
        return item if item is not None and item.version and item.size <= _SMALL_BYTES else None

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return a part of a file, fewer bytes where it ends before; raises as `read` does, except for the size."""
        kept = self._contents.get(path)
        if kept is None and (item := self._small(path)) is not None:
            with _translated(path):
                kept = _content(self.store, path, item.version)
        if kept is not None:
            first = max(0, len(kept) + start) if start < 0 else start
            return kept[first : first + length]
        with _translated(path):
            data = self.store.read_range(path, start, length)
        is_whole = start == 0 and len(data) < length
        if is_whole and len(data) <= _KEPT_BYTES and len(self._contents) < _KEPT_FILES:
            self._contents[path] = data
        return data


@lru_cache(maxsize=_RECENT_FILES)
def _content(store: Store, path: str, _version: str) -> bytes:
    """Return a file. A run opens its checkpoint about twenty times, and a sensor at each tick; few files are new."""
    return store.read(path)


Checkpoint = Folder | Store | str | os.PathLike[str]
"""A checkpoint: its files as somebody has opened them, the store of its files, or its path on a local or mounted file
system (also a `file:` address)."""


def _by_folder(files: Iterable[Entry]) -> dict[str, dict[str, Entry]]:
    """Return the entries of each folder by name."""
    items: dict[str, dict[str, Entry]] = {"": {}}
    for file in files:
        entry = file
        while True:
            folder, _, name = entry.key.rpartition("/")
            known = folder in items
            items.setdefault(folder, {})[name] = entry
            if known:
                break
            entry = Entry(folder, kind="folder")
    return items


class _SeekableFile(io.RawIOBase):
    """A file of a store as a file of Python, to be read through a buffer."""

    def __init__(self, folder: Folder, item: Entry) -> None:
        self._folder, self._item, self._position = folder, item, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._item.size}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._position = base + offset
        return self._position

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer)
        data = self._folder.read_range(self._item.key, self._position, len(view))
        view[: len(data)] = data
        self._position += len(data)
        return len(data)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Translate errors of the store into errors about a file of the checkpoint."""
    try:
        yield
    except FileNotFoundError:
        raise FileAbsentError(path) from None
    except OutsideError:
        raise CheckpointFormatError(
            path,
            "It is a symbolic link that leaves the checkpoint; the link was not followed.",
            code="outside-link",
            fix="Replace the link with the file itself.",
        ) from None
    except NotAFileError:
        raise CheckpointFormatError(path, "It is not a regular file.", code="not-a-file") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in a path
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise CheckpointFormatError(path, f"It cannot be read: {reason}.", code="unreadable-file") from None

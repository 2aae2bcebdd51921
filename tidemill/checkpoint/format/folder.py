"""The only access to a checkpoint's files: local folders now, object stores later.

The content of the folder is untrusted data: reads are bounded, only regular files are opened, and a symbolic
link that leaves the folder is refused rather than followed.
"""

# `Path` costs several times as much per name as `os` does, and a log has tens of thousands of names.
# ruff: noqa: PTH111, PTH112, PTH114, PTH118, PTH208

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO, Literal

from tidemill.checkpoint.format.errors import CheckpointFormatError, FileAbsentError
from tidemill.checkpoint.format.logfile import batch_number

MAX_FILE_BYTES = 64 << 20
"""The size limit of a file that Spark itself reads at once (an offset, a commit, a schema)."""

MAX_DEPTH = 8
"""The deepest level of a checkpoint that is read; Spark's own files are at most six levels down."""

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of a folder.

    Attributes:
        name: The name, without the folder.
        kind: The kind of entry: `outside` is a symbolic link that leaves the checkpoint, `other` a broken link,
            a pipe or a device.
        size: Bytes of a file; 0 for other entries.
        link: True if the name is a symbolic link.
        modified_ns: When a file was last written, nanoseconds since the epoch; 0 for other entries.
    """

    name: str
    kind: Literal["file", "folder", "outside", "other"]
    size: int
    link: bool = False
    modified_ns: int = 0


@dataclass(frozen=True, slots=True)
class Folder:
    """A read-only folder; every path is relative to it, with `/` between the names.

    Attributes:
        root: The folder, with its own symbolic links resolved.
        address: The path as the caller gave it.

    Listings and resolved paths are cached: one object sees each folder at one moment.
    """

    root: str
    address: str
    _names: dict[str, list[str]] = field(default_factory=dict, repr=False, compare=False)
    _numbers: dict[str, list[int]] = field(default_factory=dict, repr=False, compare=False)
    _real_paths: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> "Folder":
        """Return the folder at a path of a local or mounted file system, or at a `file:` address."""
        address = os.fspath(path)
        prefix = "file://" if address.startswith("file:///") else "file:"
        return cls(os.path.realpath(os.path.expanduser(address.removeprefix(prefix))), address)

    def exists(self) -> bool:
        """Return whether the folder exists."""
        return os.path.isdir(self.root)

    def names(self, folder: str) -> list[str]:
        """Return the unordered names in a folder; an empty list if the folder does not exist.

        Raises:
            CheckpointFormatError: The folder is outside the checkpoint or unreadable.
        """
        if folder not in self._names:
            with _translated(folder):
                try:
                    self._names[folder] = os.listdir(self._inside(folder))
                except (FileNotFoundError, NotADirectoryError):
                    self._names[folder] = []
        return self._names[folder]

    def numbers(self, folder: str) -> list[int]:
        """Return the names in a folder that are numbers, ascending; raises as `names` does."""
        if folder not in self._numbers:
            digits = [name for name in self.names(folder) if name.isdigit()]
            numbers = (batch_number(name) for name in digits)
            self._numbers[folder] = sorted(number for number in numbers if number is not None)
        return self._numbers[folder]

    def items(self, folder: str) -> list[Item]:
        """Return the entries of a folder by name; empty if it does not exist; raises as `names` does."""
        items = (self.item(f"{folder}/{name}" if folder else name) for name in sorted(self.names(folder)))
        return [item for item in items if item]

    def walk(self, folder: str = "", depth: int = MAX_DEPTH) -> Iterator[tuple[str, Item]]:
        """Yield everything below a folder that is not a folder itself, with its path; links are not followed.

        Args:
            folder: The folder to start from.
            depth: The number of levels to go down; Spark writes nothing deeper.

        Raises:
            CheckpointFormatError: A folder is unreadable.
        """
        for item in self.items(folder):
            path = f"{folder}/{item.name}" if folder else item.name
            if item.kind == "folder" and not item.link and depth > 0:
                yield from self.walk(path, depth - 1)
            else:
                yield path, item

    def item(self, path: str) -> Item | None:
        """Return the entry at a path; None if the path does not exist.

        Raises:
            CheckpointFormatError: Its folder is unreadable.
        """
        name = path.rpartition("/")[2]
        with _translated(path):
            full_path = os.path.join(self.root, path)
            try:
                status = os.lstat(full_path)
                link = stat.S_ISLNK(status.st_mode)
                if link:
                    status = os.lstat(self._inside(path))
            except (FileNotFoundError, NotADirectoryError):
                return Item(name, "other", 0, link=True) if os.path.islink(full_path) else None
            except CheckpointFormatError:
                return Item(name, "outside", 0, link=True)
        if stat.S_ISREG(status.st_mode):
            return Item(name, "file", status.st_size, link, status.st_mtime_ns)
        return Item(name, "folder" if stat.S_ISDIR(status.st_mode) else "other", 0, link)

    def read(self, path: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the content of a file.

        Raises:
            FileAbsentError: The file does not exist.
            CheckpointFormatError: The file is larger than `limit`, not a regular file, outside the checkpoint,
                or unreadable.
        """
        with self.open(path) as file, _translated(path):
            data = file.read(limit + 1)
        if len(data) > limit:
            raise CheckpointFormatError(path, f"It is larger than {limit} bytes.", code="file-too-large")
        return data

    def ends(self, path: str, size: int) -> tuple[bytes, bytes]:
        """Return the first bytes of a file, and the last bytes if it is longer; raises as `read` does."""
        with self.open(path) as file, _translated(path):
            head = file.read(size)
            length = file.seek(0, os.SEEK_END)
            if length <= size:
                return head, b""
            file.seek(max(size, length - size))
            return head, file.read(size)

    def blocks(self, path: str) -> Iterator[bytes]:
        """Yield a file of any size in blocks of a megabyte; raises as `read` does, except for the size."""
        with self.open(path) as file:
            while block := _read_block(path, file):
                yield block

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """Open a file of any size for seeking; raises as `read` does, except for the size."""
        # NOFOLLOW: the link that was resolved may have been replaced since. NONBLOCK: opening a named pipe must
        # not wait for a writer.
        with _translated(path):
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._inside(path), flags)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise CheckpointFormatError(path, "It is not a regular file.", code="not-a-file")
        with os.fdopen(descriptor, "rb") as file:
            yield file

    def _inside(self, path: str) -> str:
        """Return the real path of a path, which must be below the root."""
        parent, _, name = path.rpartition("/")
        if parent not in self._real_paths:
            self._real_paths[parent] = self._resolved(parent)
        full_path = os.path.join(self._real_paths[parent], name)
        plain = name not in {"", ".", ".."} and not os.path.islink(full_path)
        return full_path if plain else self._resolved(path)

    def _resolved(self, path: str) -> str:
        real = os.path.realpath(os.path.join(self.root, path))
        if real != self.root and not real.startswith(self.root.rstrip(os.sep) + os.sep):
            raise CheckpointFormatError(
                path,
                "It is a symbolic link that leaves the checkpoint; the link was not followed.",
                code="outside-link",
                fix="Replace the link with the file itself.",
            )
        return real


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Translate errors of the operating system into errors about a file of the checkpoint."""
    try:
        yield
    except FileNotFoundError:
        raise FileAbsentError(path) from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in a path
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise CheckpointFormatError(path, f"It cannot be read: {reason}.", code="unreadable-file") from None


def _read_block(path: str, file: BinaryIO) -> bytes:
    with _translated(path):
        return file.read(_BLOCK)

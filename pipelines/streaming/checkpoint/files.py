"""The one seam through which a checkpoint's files are reached: local folders now, object stores later.

Whatever lies in the folder is data, never trusted: reads are bounded, only regular files are opened, and a
symbolic link that leaves the folder is refused rather than followed.
"""

# `Path` costs several times as much a name as `os` does, and there are ten thousands of names.
# ruff: noqa: PTH111, PTH112, PTH114, PTH118, PTH208

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO, Literal

from pipelines.streaming.checkpoint.errors import CheckpointFormatError, FileAbsentError
from pipelines.streaming.checkpoint.logfile import batch_number

MAX_FILE_BYTES = 64 << 20
"""The most that is read of a file that Spark itself reads at once (an offset, a commit, a schema)."""

MAX_DEPTH = 8
"""How deep a checkpoint is followed; Spark's own files are at most six levels down."""

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Item:
    """One name in a folder.

    Attributes:
        name: The name, without the folder.
        kind: What it is: `outside` is a symbolic link that leaves the checkpoint, `other` a broken link, a
            pipe or a device.
        size: Bytes of a file; 0 for the others.
        link: Whether the name is a symbolic link.
    """

    name: str
    kind: Literal["file", "folder", "outside", "other"]
    size: int
    link: bool = False


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is only read; every path is relative to it, with `/` between the names.

    Attributes:
        root: The folder, its own symbolic links resolved.
        address: The path as it was given.

    The names in a folder and its real place are remembered: one object sees one moment of each folder.
    """

    root: str
    address: str
    _names: dict[str, list[str]] = field(default_factory=dict, repr=False, compare=False)
    _numbers: dict[str, list[int]] = field(default_factory=dict, repr=False, compare=False)
    _places: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> "Folder":
        """The folder at a path of a local or mounted file system; `file:` addresses are taken as well."""
        given = os.fspath(path)
        plain = given.removeprefix("file://") if given.startswith("file:///") else given.removeprefix("file:")
        return cls(os.path.realpath(os.path.expanduser(plain)), given)

    def exists(self) -> bool:
        """Whether the folder is there."""
        return os.path.isdir(self.root)

    def names(self, folder: str) -> list[str]:
        """The names in a folder in no order, without a look at each; empty where there is no such folder.

        Raises:
            CheckpointFormatError: the folder is outside or unreadable.
        """
        if folder not in self._names:
            with _translated(folder):
                try:
                    self._names[folder] = os.listdir(self._inside(folder))
                except (FileNotFoundError, NotADirectoryError):
                    self._names[folder] = []
        return self._names[folder]

    def numbers(self, folder: str) -> list[int]:
        """The names in a folder that are numbers, ascending; raises as `names` does."""
        if folder not in self._numbers:
            digits = [name for name in self.names(folder) if name.isdigit()]
            found = (batch_number(name) for name in digits)
            self._numbers[folder] = sorted(number for number in found if number is not None)
        return self._numbers[folder]

    def items(self, folder: str) -> list[Item]:
        """What is in a folder, by name; empty where there is no such folder; raises as `names` does."""
        found = (self.item(f"{folder}/{name}" if folder else name) for name in sorted(self.names(folder)))
        return [item for item in found if item]

    def walk(self, folder: str = "", depth: int = MAX_DEPTH) -> Iterator[tuple[str, Item]]:
        """Everything below a folder that is not a folder itself, with its path; links are not gone into.

        Args:
            folder: Where to start.
            depth: How many levels to go down; what is deeper, Spark did not write.

        Raises:
            CheckpointFormatError: a folder is unreadable.
        """
        for item in self.items(folder):
            path = f"{folder}/{item.name}" if folder else item.name
            if item.kind == "folder" and not item.link and depth > 0:
                yield from self.walk(path, depth - 1)
            else:
                yield path, item

    def item(self, path: str) -> Item | None:
        """What is at a path; None where nothing is.

        Raises:
            CheckpointFormatError: its folder is unreadable.
        """
        name = path.rpartition("/")[2]
        with _translated(path):
            place = os.path.join(self.root, path)
            try:
                status = os.lstat(place)
                link = stat.S_ISLNK(status.st_mode)
                if link:
                    status = os.lstat(self._inside(path))
            except (FileNotFoundError, NotADirectoryError):
                return Item(name, "other", 0, link=True) if os.path.islink(place) else None
            except CheckpointFormatError:
                return Item(name, "outside", 0, link=True)
        if stat.S_ISREG(status.st_mode):
            return Item(name, "file", status.st_size, link)
        return Item(name, "folder" if stat.S_ISDIR(status.st_mode) else "other", 0, link)

    def read(self, path: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """A whole file.

        Raises:
            FileAbsentError: there is no such file.
            CheckpointFormatError: it is larger than `limit`, no regular file, outside, or unreadable.
        """
        with self._opened(path) as file, _translated(path):
            data = file.read(limit + 1)
        if len(data) > limit:
            raise CheckpointFormatError(path, f"It is larger than {limit} bytes.", code="file-too-large")
        return data

    def ends(self, path: str, size: int) -> tuple[bytes, bytes]:
        """The first bytes of a file of any size, and the last where it is longer; raises as `read` does."""
        with self._opened(path) as file, _translated(path):
            head = file.read(size)
            length = file.seek(0, os.SEEK_END)
            if length <= size:
                return head, b""
            file.seek(max(size, length - size))
            return head, file.read(size)

    def blocks(self, path: str) -> Iterator[bytes]:
        """A file of any size in blocks of a megabyte; raises as `read` does, but for the size."""
        with self._opened(path) as file:
            while block := self._block(path, file):
                yield block

    @contextmanager
    def opened(self, path: str) -> Iterator[BinaryIO]:
        """A file to seek in; raises as `read` does, but for the size."""
        with self._opened(path) as file:
            yield file

    @staticmethod
    def _block(path: str, file: BinaryIO) -> bytes:
        with _translated(path):
            return file.read(_BLOCK)

    @contextmanager
    def _opened(self, path: str) -> Iterator[BinaryIO]:
        # The link that was resolved may have been exchanged since: NOFOLLOW. SourceContext a named pipe must not
        # wait for a writer: NONBLOCK.
        with _translated(path):
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._inside(path), flags)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise CheckpointFormatError(path, "It is not a regular file.", code="not-a-file")
        with os.fdopen(descriptor, "rb") as file:
            yield file

    def _inside(self, path: str) -> str:
        """The real place of a path, which must be below the root."""
        parent, _, name = path.rpartition("/")
        if parent not in self._places:
            self._places[parent] = self._resolved(parent)
        place = os.path.join(self._places[parent], name)
        plain = name not in {"", ".", ".."} and not os.path.islink(place)
        return place if plain else self._resolved(path)

    def _resolved(self, path: str) -> str:
        real = os.path.realpath(os.path.join(self.root, path))
        if real != self.root and not real.startswith(self.root.rstrip(os.sep) + os.sep):
            raise CheckpointFormatError(
                path,
                "It is a symbolic link that leaves the checkpoint; it was not followed.",
                code="outside-link",
                fix="Put the file itself in the place of the link.",
            )
        return real


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Errors of the operating system as errors about a file of the checkpoint."""
    try:
        yield
    except FileNotFoundError:
        raise FileAbsentError(path) from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in a path
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise CheckpointFormatError(path, f"It cannot be read: {reason}.", code="unreadable-file") from None

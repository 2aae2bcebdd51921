"""Where the files of a lake are: the few verbs that a file system and every object store have.

A key is the path of a file below the root of its store, with "/" between the names. There is no rename, append,
mkdir, exists or stat: a file is created or replaced as a whole, and a folder is there while it has files.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


class ChangedError(OSError):
    """A file was replaced or removed since its version was seen."""


class OutsideError(OSError):
    """A symbolic link leads out of a store that is confined to its root."""


class NotAFileError(OSError):
    """What has the name of a file is a folder, a pipe or a device."""


EntryKind = Literal["file", "folder", "outside", "other"]


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """A file, or a folder of a listing of one level.

    Attributes:
        key: Its key.
        size: The bytes of a file; 0 of anything else.
        modified: When a file was last written by the store's clock, seconds since the epoch; 0 of anything else.
        kind: A file or a folder. Only a confined store of a file system has more: `outside` is a symbolic link that
            leaves its root, `other` another link that leads to no file, a pipe or a device.
        version: The version of a file's content, where a listing of the store has it; else "".
    """

    key: str
    size: int = 0
    modified: float = 0.0
    kind: EntryKind = "file"
    version: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """The last name of its key."""
        return self.key.rpartition("/")[2]

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.kind == "folder"


class Store(Protocol):
    """The files below one root. A store is a plain address, so it can be pickled and used from any process."""

    def __hash__(self) -> int: ...

    def __str__(self) -> str:
        """Return the address of the root."""
        ...

    def read(self, key: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: There is no such file.
        """
        ...

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Return a part of a file; fewer bytes where it ends before.

        Args:
            key: The file.
            start: The first byte; negative from the end of the file, as in a slice.
            length: The number of bytes.

        Raises:
            FileNotFoundError: There is no such file.
        """
        ...

    def create(self, key: str, data: bytes) -> str:
        """Create a file and return its version. One of several writers succeeds, and no reader sees a part.

        Raises:
            FileExistsError: There is such a file already.
        """
        ...

    def replace(self, key: str, data: bytes, *, unchanged: str | None = None) -> str:
        """Replace a file, or create it, as a whole, and return its version.

        Args:
            key: The file.
            data: Its new content.
            unchanged: The version that it must still have.

        Raises:
            ChangedError: It has another version, or is missing.
        """
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files; those that are missing are passed over."""
        ...

    def list(self, prefix: str = "", *, after: str = "") -> Sequence[Entry]:
        """Return the files and folders directly in a folder, sorted; none where it is missing.

        Args:
            prefix: The folder; "" is the root.
            after: Only those whose names come after this one.
        """
        ...

    def names(self, prefix: str = "", *, after: str = "") -> Sequence[str]:
        """Return the names that `list` has, in any order: cheaper on a file system, which asks for sizes and times."""
        ...

    def walk(self, prefix: str = "", *, after: str = "") -> Sequence[Entry]:
        """Return all files below a folder at any depth, sorted by key; none where it is missing.

        Args:
            prefix: The folder; "" is the root.
            after: Only those whose keys come after this one.
        """
        ...

    def has_files(self, prefix: str = "") -> bool:
        """Return whether anything is in a folder, without listing all of it."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that is below it; nothing happens where it is missing."""
        ...

    def copy(self, source: str, to: str, into: "Store | None" = None) -> None:
        """Copy a file, over one that is there.

        Args:
            source: The file.
            to: The key of the copy.
            into: The store of the copy, this one by default. Between stores of one kind, no content passes through this
                process.

        Raises:
            FileNotFoundError: There is no file to copy.
        """
        ...

    @property
    def has_folders(self) -> bool:
        """Whether listing one folder costs less than listing everything, and reading a file hardly anything."""
        ...

    def below(self, prefix: str) -> "Store":
        """Return the store of the files below a folder."""
        ...

    def confined(self) -> "Store":
        """Return the same files for reading what others wrote: no symbolic link leads out of the root.

        It opens regular files only, and a reader keeps it no longer than it needs one view of the files.

        Raises:
            OutsideError: Here and in every verb: a symbolic link leaves the root.
            NotAFileError: In the verbs that read: the key is not that of a regular file.
        """
        ...

    def uri(self, key: str = "") -> str:
        """Return the address of a file or folder as Spark and delta-rs take it; of the root without a key."""
        ...

    def delta_options(self) -> Mapping[str, str]:
        """Return the options with which delta-rs opens a table of this store."""
        ...

    def arrow_files(self) -> "tuple[FileSystem, str]":
        """Return the file system of Arrow's own in which the files are, and the path of the root in it.

        Raises:
            NotImplementedError: Arrow has none: a store in memory has no tables.
        """
        ...


def one_level(files: Iterable[Entry], prefix: str, after: str) -> Sequence[Entry]:
    """Return the files and folders directly in a folder, from those of all levels below it.

    Args:
        files: The files below the folder.
        prefix: The folder; "" is the root.
        after: Only those whose names come after this one.
    """
    start = len(prefix) + 1 if prefix else 0
    entries = {
        Entry(file.key[: start + len(name)], kind="folder") if deeper else file
        for file in files
        for name, deeper, _ in [file.key[start:].partition("/")]
        if name > after
    }
    return sorted(entries)


def checked_key(key: str) -> str:
    """Return a key after a check of its form.

    Raises:
        ValueError: It is empty, absolute, or has an empty name, "." or "..".
    """
    if any(name in {"", ".", ".."} or "\0" in name for name in key.split("/")):
        raise ValueError(f"{key!r} is not a key: it must consist of names with '/' between them")
    return key

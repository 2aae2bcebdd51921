"""A store on a file system, local or mounted."""

import errno
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from tidemill.errors import NOTHING_LOST, ConfigurationError
from tidemill.storage.store import ChangedError, Entry, NotAFileError, OutsideError, Store, checked_key

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# A file before it has its name: left behind only by a kill, and never listed.
_UNFINISHED = ".unfinished"
# How often a folder that is missing is created before a write gives up.
_TRIES = 100
_T = TypeVar("_T")
# Also `s3:/bucket`, which is what `Path` makes of `s3://bucket`.
_ADDRESS = re.compile(r"(?!file:)([A-Za-z][A-Za-z0-9+.-]+):/", re.IGNORECASE)
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


def scheme_of(path: str) -> str | None:
    """Return the scheme of an address that is not on a file system, such as `s3`; None of a path."""
    address = _ADDRESS.match(path)
    return None if address is None else address[1]


def local_path(path: str | Path, *, field: str, root: Path | None = None) -> Path:
    """Return a path of a file system, absolute and without `file://`.

    Args:
        path: The path.
        field: What is there, for an error.
        root: Where a relative path starts; the working directory by default.

    Raises:
        ConfigurationError: It is the address of another store.
    """
    if scheme := scheme_of(str(path)):
        raise ConfigurationError(
            f"{field} {str(path)!r} is on {scheme}://, which Tidemill does not support there.",
            lost=NOTHING_LOST,
            fix="use a folder of a local or mounted file system; lakes, feeds and sources can also be on s3://.",
            code="store-not-supported",
        )
    return ((root or Path()) / Path(str(path).removeprefix("file://")).expanduser()).absolute()


@dataclass(frozen=True, slots=True)
class LocalStore:
    """The files below a folder.

    Attributes:
        root: An absolute path.
    """

    root: Path

    def __str__(self) -> str:
        return self.uri()

    def read(self, key: str) -> bytes:
        """Return the content of a file."""
        with open(self._path(key), "rb", opener=self._open) as file:
            return file.read()

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Return a part of a file."""
        descriptor = self._open(self._path(key))
        try:
            size = os.fstat(descriptor).st_size
            first = max(0, size + start) if start < 0 else start
            return os.pread(descriptor, max(0, min(length, size - first)), first)
        finally:
            os.close(descriptor)

    def create(self, key: str, data: bytes) -> str:
        """Create a file: a hard link of a finished one, which fails where the name is taken."""
        path = self._path(key)
        unfinished, version = _write(path, data)
        try:
            _link_or_create(unfinished, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(unfinished)
        return version

    def replace(self, key: str, data: bytes, *, unchanged: str | None = None) -> str:
        """Replace a file by a finished one."""
        path = self._path(key)
        unfinished, version = _write(path, data)
        try:
            if unchanged is None:
                os.replace(unfinished, path)
            else:
                _replace_unchanged(unfinished, path, unchanged)
        except OSError:
            os.unlink(unfinished)
            raise
        return version

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files, and the folders that are empty then."""
        folders = set()
        for key in keys:
            path = self._path(key)
            with suppress(FileNotFoundError):
                os.unlink(path)
            folders.add(os.path.dirname(path))
        for folder in folders:
            self._remove_empty(folder)

    def has_files(self, prefix: str = "") -> bool:
        """Return whether anything is in a folder."""
        return bool(self.names(prefix))

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that is below it, empty folders as well: Delta takes such for a table's log.

        Those above it stay: Spark may be about to create another table there, and does not retry.
        """
        with suppress(FileNotFoundError):
            shutil.rmtree(self._path(folder))

    def _remove_empty(self, folder: str) -> None:
        """Remove a folder that has nothing in it, and those above it up to the root."""
        root = os.fspath(self.root)
        with suppress(OSError):  # one that has files, or that another process removed
            while len(folder) >= len(root):
                os.rmdir(folder)
                folder = os.path.dirname(folder)

    def list(self, prefix: str = "", *, after: str = "") -> Sequence[Entry]:
        """Return the files and folders directly in a folder."""
        entries = (self._entry(key, item) for key, item in self._scan(prefix, after))
        return sorted((entry for entry in entries if entry is not None), key=attrgetter("key"))

    def names(self, prefix: str = "", *, after: str = "") -> Sequence[str]:
        """Return the names that `list` has."""
        try:
            names = os.listdir(self._folder(prefix))
        except (FileNotFoundError, NotADirectoryError):
            return []
        names = [name for name in names if not name.endswith(_UNFINISHED)]
        return [name for name in names if name > after] if after else names

    def walk(self, prefix: str = "", *, after: str = "") -> Sequence[Entry]:
        """Return all files below a folder. A symbolic link below it is a file."""
        return sorted((entry for entry in self._walk(prefix) if entry.key > after), key=attrgetter("key"))

    def copy(self, source: str, to: str, into: Store | None = None) -> None:
        """Copy a file by a hard link: neither name is ever written in place."""
        if into is not None and not isinstance(into, LocalStore):
            into.replace(to, self.read(source))
            return
        path = self._path(to) if into is None else into.uri(to)
        unfinished = _unfinished(path)
        _in_folder(path, lambda: _link_or_copy(self._path(source), unfinished))
        os.replace(unfinished, path)
        with suppress(FileNotFoundError):  # nothing was renamed where both are the same file already
            os.unlink(unfinished)

    @property
    def has_folders(self) -> bool:
        """A file system lists a folder."""
        return True

    def below(self, prefix: str) -> "LocalStore":
        """Return the store of the files below a folder."""
        return LocalStore(self.root / checked_key(prefix))

    def confined(self) -> "LocalStore":
        """Return the same files without links that lead out of the root."""
        return ConfinedStore(Path(os.path.realpath(self.root)))

    def uri(self, key: str = "") -> str:
        """Return the path of a file or folder."""
        return f"{self.root}/{checked_key(key)}" if key else os.fspath(self.root)

    def delta_options(self) -> Mapping[str, str]:
        """Return no options: delta-rs takes a path as it is."""
        return {}

    def arrow_files(self) -> "tuple[FileSystem, str]":
        """Return Arrow's local file system."""
        from pyarrow.fs import LocalFileSystem

        return LocalFileSystem(), os.fspath(self.root)

    def _path(self, key: str) -> str:
        return f"{self.root}/{checked_key(key)}"

    def _folder(self, prefix: str) -> str:
        return self._path(prefix) if prefix else os.fspath(self.root)

    def _open(self, path: str, flags: int = os.O_RDONLY | os.O_CLOEXEC) -> int:
        return os.open(path, flags)

    def _scan(self, prefix: str, after: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
        try:
            with os.scandir(self._folder(prefix)) as items:
                for item in items:
                    if item.name > after and not item.name.endswith(_UNFINISHED):
                        yield (f"{prefix}/{item.name}" if prefix else item.name), item
        except (FileNotFoundError, NotADirectoryError):
            return

    def _walk(self, prefix: str) -> Iterator[Entry]:
        for key, item in self._scan(prefix):
            if item.is_dir(follow_symlinks=False):
                yield from self._walk(key)
            elif (entry := _file(key, item)) is not None:
                yield entry

    def _entry(self, key: str, item: os.DirEntry[str]) -> Entry | None:
        """Return the entry of a file or folder; None where it was deleted in the meantime."""
        return Entry(key, kind="folder") if item.is_dir() else _file(key, item)


@dataclass(frozen=True, slots=True)
class ConfinedStore(LocalStore):
    """The files below a folder whose content others wrote: no link leads out of it, and only regular files are opened.

    The path of the folder itself has no link. A folder in it is resolved once.
    """

    _resolved_folders: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def below(self, prefix: str) -> "ConfinedStore":
        """Return the store of the files below a folder."""
        return ConfinedStore(self.root / self._resolved(checked_key(prefix)))

    def _path(self, key: str) -> str:
        parent, _, name = checked_key(key).rpartition("/")
        if parent not in self._resolved_folders:
            self._resolved_folders[parent] = self._resolved(parent)
        path = f"{self._resolved_folders[parent]}/{name}"
        return self._resolved(key) if os.path.islink(path) else path

    def _resolved(self, key: str) -> str:
        """Return the path of a key after all links, which must be below the root."""
        root = os.fspath(self.root)
        path = os.path.realpath(f"{root}/{key}")
        if path != root and not path.startswith(f"{root.rstrip('/')}/"):
            raise OutsideError(f"{root}/{key} is a symbolic link that leaves {root}")
        return path

    def _open(self, path: str, flags: int = os.O_RDONLY | os.O_CLOEXEC) -> int:
        # NOFOLLOW: the link that was resolved may have been replaced since. NONBLOCK: opening a named pipe must not
        # wait for a writer.
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise NotAFileError(f"{path} is not a regular file")
        return descriptor

    def _entry(self, key: str, item: os.DirEntry[str]) -> Entry | None:
        is_link = item.is_symlink()
        try:
            status = os.lstat(self._resolved(key)) if is_link else item.stat(follow_symlinks=False)
        except FileNotFoundError:
            return Entry(key, kind="other") if is_link else None
        except OutsideError:
            return Entry(key, kind="outside")
        if stat.S_ISREG(status.st_mode):
            return Entry(key, status.st_size, status.st_mtime)
        return Entry(key, kind="folder" if stat.S_ISDIR(status.st_mode) and not is_link else "other")


def _file(key: str, item: os.DirEntry[str]) -> Entry | None:
    try:
        stat = item.stat(follow_symlinks=not item.is_symlink())
    except FileNotFoundError:
        return None
    return Entry(key, stat.st_size, stat.st_mtime)


def _unfinished(path: str) -> str:
    folder, name = os.path.split(path)
    return f"{folder}/.{name}.{uuid4().hex[:8]}{_UNFINISHED}"


def _in_folder(path: str, write: Callable[[], _T]) -> _T:
    """Write a file and create its folder where it is missing; a `delete` may remove the folder in between."""
    for _ in range(_TRIES):
        try:
            return write()
        except FileNotFoundError:
            with suppress(FileNotFoundError, FileExistsError):  # another delete came in between
                os.makedirs(os.path.dirname(path), exist_ok=True)
    return write()


def _write(path: str, data: bytes) -> tuple[str, str]:
    """Write a file that does not have its name yet, and return its path and version."""
    unfinished = _unfinished(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(_in_folder(path, lambda: os.open(unfinished, flags, 0o666)), "wb") as file:
        try:
            file.write(data)
            file.flush()
        except OSError:
            os.unlink(unfinished)
            raise
        return unfinished, _version(file.fileno())


def _version(file: int | str) -> str:
    stat = os.stat(file)
    return f"{stat.st_ino}-{stat.st_mtime_ns}-{stat.st_size}"


def _link_or_copy(source: str, to: str) -> None:
    try:
        os.link(source, to)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        shutil.copy2(source, to)


def _link_or_create(unfinished: str, path: str) -> None:
    """Give a finished file its name, which nothing may have."""
    try:
        os.link(unfinished, path)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        os.replace(unfinished, path)


def _replace_unchanged(unfinished: str, path: str, version: str) -> None:
    """Replace a file of a version. Writers that expect one wait for each other by a lock on the file itself."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _version(file.fileno()) == version == _version(path):
                os.replace(unfinished, path)
                return
    except FileNotFoundError:
        pass
    raise ChangedError(f"{path} was replaced or removed by another process")

"""A store in the memory of this process, for tests."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import Lock
from time import time
from typing import TYPE_CHECKING
from uuid import uuid4

from tidemill.storage.store import ChangedError, Entry, Store, checked_key, one_level

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# By the name of a store: content, time and version by key. A pickled store is the same store in the same process.
_FILES: dict[str, dict[str, tuple[bytes, float, str]]] = {}
_WRITING = Lock()
_VERSIONS = count()


@dataclass(frozen=True, slots=True)
class MemoryStore:
    """Files in memory.

    Attributes:
        name: What identifies the store in this process.
        root: What the keys of its files begin with.
    """

    name: str = field(default_factory=lambda: uuid4().hex)
    root: str = ""

    def __str__(self) -> str:
        return self.uri()

    def read(self, key: str) -> bytes:
        """Return the content of a file."""
        try:
            return self._files[self._key(key)][0]
        except KeyError:
            raise FileNotFoundError(self.uri(key)) from None

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Return a part of a file."""
        data = self.read(key)[start:]
        return data[:length]

    def create(self, key: str, data: bytes) -> str:
        """Create a file."""
        with _WRITING:
            if self._key(key) in self._files:
                raise FileExistsError(self.uri(key))
            return self._put(key, data)

    def replace(self, key: str, data: bytes, *, unchanged: str | None = None) -> str:
        """Replace a file."""
        with _WRITING:
            if unchanged is not None and self._files.get(self._key(key), (b"", 0.0, None))[2] != unchanged:
                raise ChangedError(f"{self.uri(key)} was replaced or removed by another process")
            return self._put(key, data)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files."""
        for key in keys:
            self._files.pop(self._key(key), None)

    def has_files(self, prefix: str = "") -> bool:
        """Return whether there is a file below a folder."""
        return bool(self.walk(prefix))

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that is below it."""
        self.delete([entry.key for entry in self.walk(folder)])

    def list(self, prefix: str = "", *, after: str = "") -> Sequence[Entry]:
        """Return the files and folders directly in a folder."""
        return one_level(self.walk(prefix), prefix, after)

    def names(self, prefix: str = "", *, after: str = "") -> Sequence[str]:
        """Return the names that `list` has."""
        return [entry.name for entry in self.list(prefix, after=after)]

    def walk(self, prefix: str = "", *, after: str = "") -> Sequence[Entry]:
        """Return all files below a folder."""
        below = f"{self._key(prefix)}/" if prefix else self.root
        return sorted(
            Entry(key.removeprefix(self.root), len(data), modified)
            for key, (data, modified, _) in [*self._files.items()]
            if key.startswith(below) and key > self.root + after
        )

    def copy(self, source: str, to: str, into: Store | None = None) -> None:
        """Copy a file."""
        (into or self).replace(to, self.read(source))

    @property
    def has_folders(self) -> bool:
        """A listing has all files."""
        return False

    def below(self, prefix: str) -> "MemoryStore":
        """Return the store of the files below a folder."""
        return MemoryStore(self.name, f"{self._key(prefix)}/")

    def confined(self) -> "MemoryStore":
        """Return the store itself: it has no links."""
        return self

    def uri(self, key: str = "") -> str:
        """Return the address of a file or folder, which only this process knows."""
        return f"memory://{self.name}/{self._key(key) if key else self.root}".rstrip("/")

    def delta_options(self) -> Mapping[str, str]:
        """Return no options."""
        return {}

    def arrow_files(self) -> "tuple[FileSystem, str]":
        """Raise an error: a store in memory has no tables."""
        raise NotImplementedError

    @property
    def _files(self) -> dict[str, tuple[bytes, float, str]]:
        return _FILES.setdefault(self.name, {})

    def _key(self, key: str) -> str:
        return self.root + checked_key(key)

    def _put(self, key: str, data: bytes) -> str:
        version = str(next(_VERSIONS))
        self._files[self._key(key)] = (data, time(), version)
        return version

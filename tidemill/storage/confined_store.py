"""A folder of a file system whose content others wrote: no link leads out of it, and only regular files are opened."""

import os
import stat
from dataclasses import dataclass, field

from tidemill.storage.local_store import LocalStore
from tidemill.storage.store import Entry, NotAFileError, OutsideError, checked_key


@dataclass(frozen=True, slots=True)
class ConfinedStore(LocalStore):
    """The files below a folder, whose own path has no link. A folder of it is resolved once."""

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

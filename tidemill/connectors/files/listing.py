"""The files of a folder, a file or a glob, as the file source lists them (`InMemoryFileIndex` of Spark).

Names that begin with `_` or `.` are not data (`HadoopFSUtils.shouldFilterOutPathName`), and folders below count only
where there are partition folders (`day=1`) or `recursiveFileLookup` is on. An empty file is a file. A folder with the
log of a file sink has the files of the log.
"""

# `Path` costs several times as much per name as `os` does, and there may be hundreds of thousands.
# ruff: noqa: PTH113, PTH116, PTH119, PTH207, PTH208
import glob
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from shlex import quote

from tidemill.connectors.files.addresses import (
    alternatives,
    is_glob,
    is_on_store,
    is_unknown,
    source_path,
    without_glob,
)
from tidemill.connectors.files.sink_log import SINK_LOG, FileLog
from tidemill.connectors.known_options import option_of
from tidemill.errors import TerminalError
from tidemill.storage.lake import Lake
from tidemill.storage.local_store import LocalStore
from tidemill.storage.store import Entry

# In a folder of a store with fewer of them, each file is asked for by itself.
_FEW = 100
# The slashes of the address of a bucket.
_OF_A_BUCKET = 2


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file's size in bytes, and when it was last written, milliseconds since the epoch."""

    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Present:
    """The files that are there.

    Attributes:
        paths: Their addresses, without escapes.
        listed: Their status, where the listing has it. A file system is asked for that of each file.
    """

    paths: list[str]
    listed: Mapping[str, FileStatus] | None = None

    def status(self, path: str) -> FileStatus | None:
        """Return the status of one of them; None where it was removed meanwhile."""
        if self.listed is not None:
            return self.listed.get(path)
        try:
            status = os.stat(path)
        except OSError:
            return None
        return FileStatus(status.st_size, status.st_mtime_ns // 1_000_000)

    def with_others(self, others: "Present") -> "Present":
        """Return these and other files."""
        return Present(self.paths + others.paths, {**(self.listed or {}), **(others.listed or {})})

    def only(self, paths: list[str]) -> "Present":
        """Return some of them."""
        if self.listed is None:
            return Present(paths)
        return Present(paths, {path: self.listed[path] for path in paths})


def present_files(
    path: str, options: Mapping[str, str], lake: Lake, *, what: str, after: str = ""
) -> Present:
    """Return the files of a folder, a file or a glob, as the file source lists them.

    Args:
        path: A folder, a file, or a glob of them.
        options: The file source's options.
        lake: The lake of the target, which says how S3 is reached.
        what: A description of the source.
        after: Only files whose addresses come after this one; a store lists no others.

    Raises:
        TerminalError: The folder is missing or cannot be read, or has a damaged log of a file sink.
        TransientError: The store does not answer.
        ConfigurationError: The target does not say how the store is reached, or the store refuses access.
    """
    try:
        return listed_files(path, options, lake, after=after)
    except FileNotFoundError as error:
        raise TerminalError(
            f"{what}: there is no folder {error.filename}.",
            fix=f"create it (mkdir -p {quote(str(error.filename))}), or correct the target.",
            code="folder-missing",
        ) from None
    except OSError as error:
        raise TerminalError(
            f"{what}: {error.filename} cannot be read: {error.strerror}.",
            fix="give this user the right to read it, or correct the target.",
            code="source-not-readable",
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise TerminalError(
            f"{what}: the log of the file sink that writes it is damaged ({type(error).__name__}: {error}).",
            fix="restore its folder _spark_metadata from a backup.",
            code="source-not-readable",
        ) from error


def listed_files(path: str, options: Mapping[str, str], lake: Lake, *, after: str = "") -> Present:
    """Return the files of a folder, a file or a glob, as the file source lists them.

    Raises:
        OSError: The folder is missing or cannot be read. On a store, a folder without files is not missing.
    """
    files = _Files(
        recursive=option_of(options, "recursivefilelookup") == "true",
        pattern=next((value for key, value in options.items() if key.lower() == "pathglobfilter"), None),
    )
    address = source_path(path)
    return (
        _on_store(address, files, lake, after) if is_on_store(address) else Present(_on_disk(address, files))
    )


def missing_paths(paths: Iterable[str], lake: Lake) -> list[str]:
    """Return those of some files that are missing; what only Spark can list is left out.

    Each folder is listed once; on a store, few files are asked for one by one.
    """
    folders: dict[str, list[str]] = {}
    for path in paths:
        if not is_unknown(path):
            folders.setdefault(path.rpartition("/")[0], []).append(path)
    missing = []
    for folder, files in folders.items():
        names = {file.rpartition("/")[2]: file for file in files}
        if is_on_store(folder):
            store = lake.elsewhere(folder)
            lost = store.missing(names) if len(names) < _FEW else names.keys() - set(store.names())
        else:
            lost = names.keys() - _names(folder)
        missing += sorted(names[name] for name in lost)
    return missing


def _names(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()


@dataclass(slots=True)
class _Files:
    """The files of a listing, while it is made.

    Attributes:
        recursive: Whether all subfolders count.
        pattern: A glob that names must match.
        own: The files directly in a folder.
        below: The files in folders below it.
        partitioned: Whether a folder of partitions was met.
    """

    recursive: bool
    pattern: str | None
    own: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)
    partitioned: bool = False

    def chosen(self) -> list[str]:
        """Return the files that count."""
        files = self.own + self.below if self.recursive or self.partitioned else self.own
        if self.pattern is None:
            return files
        globs = alternatives(self.pattern)
        return [file for file in files if any(fnmatchcase(os.path.basename(file), name) for name in globs)]


def _on_disk(path: str, files: _Files) -> list[str]:
    roots = [path]
    if is_glob(path):
        patterns = alternatives(path)
        roots = sorted({root for pattern in patterns for root in glob.glob(pattern, include_hidden=True)})
    for root in roots:
        if os.path.isfile(root):
            files.own += [root] if _is_data(os.path.basename(root)) else []
        elif root == path and (log := FileLog(LocalStore(Path(root)))).exists():
            files.own += log.paths()
        else:
            _walk(root, files, files.own)
    return files.chosen()


def _walk(folder: str, files: _Files, own: list[str]) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not _is_data(entry.name):
                continue
            if entry.is_dir():
                files.partitioned = files.partitioned or "=" in entry.name
                _walk(entry.path, files, files.below)
            elif entry.is_file():
                own.append(entry.path)


def _on_store(path: str, files: _Files, lake: Lake, after: str) -> Present:
    """Return the files below an address, by one listing of all that is below its first pattern."""
    folder = without_glob(path)
    store = lake.elsewhere(folder)
    # What was read before the source had this folder says nothing about the names in it.
    key = after.removeprefix(f"{folder}/") if after.startswith(f"{folder}/") else ""
    entries = {f"{folder}/{entry.key}": entry for entry in store.walk(after=key)}
    if not entries and not key and path.count("/") > _OF_A_BUCKET:
        # What has the name of a folder may be a file.
        parent, _, name = path.rpartition("/")
        entry = None if is_glob(path) else lake.elsewhere(parent).entry(name)
        files.own += [path] if entry is not None else []
        return Present(files.chosen(), {} if entry is None else {path: _status(entry)})
    if path == folder and any(address.startswith(f"{folder}/{SINK_LOG}/") for address in entries):
        files.own += FileLog(store).paths()
    else:
        patterns = [pattern.split("/") for pattern in alternatives(path)] if is_glob(path) else []
        for address in entries:
            parts = address.split("/")
            depth = _matched(parts, patterns) if patterns else path.count("/") + 1
            if depth is not None:
                _sort_in(address, parts[depth:] or parts[-1:], files)
    chosen = files.chosen()
    return Present(chosen, {one: _status(entries[one]) for one in chosen if one in entries})


def _matched(parts: list[str], patterns: list[list[str]]) -> int | None:
    """Return how many of the names of an address a glob matches; None where it does not."""
    lengths = (len(one) for one in patterns if len(parts) >= len(one) and all(map(fnmatchcase, parts, one)))
    return next(lengths, None)


def _sort_in(address: str, below: list[str], files: _Files) -> None:
    """Add a file to those of a listing, unless it is no data.

    Args:
        address: The file.
        below: The names in its address that follow the folder of the source.
    """
    if all(map(_is_data, below)):
        *folders, _ = below
        files.partitioned = files.partitioned or any("=" in folder for folder in folders)
        (files.below if folders else files.own).append(address)


def _status(entry: Entry) -> FileStatus:
    return FileStatus(entry.size, int(entry.modified * 1000))


def _is_data(name: str) -> bool:
    if not name.startswith(("_", ".")):
        return not name.endswith("._COPYING_")
    if name.startswith(("_metadata", "_common_metadata")):
        return True
    return name.startswith("_") and "=" in name and not name.endswith("._COPYING_")

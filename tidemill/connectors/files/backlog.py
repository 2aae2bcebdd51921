"""The backlog in a folder: its files against the file source's own log of the files it has read.

The listing is Spark's (`InMemoryFileIndex`, `HadoopFSUtils.shouldFilterOutPathName`): names that begin with
`_` or `.` are not data, and folders below count only where there are partition folders (`day=1`) or
`recursiveFileLookup` is on. An empty file is a file. Times do not count: a rename keeps them. A folder with the log of
a file sink has the files of the log.
"""

# `Path` costs several times as much per name as `os` does, and there may be hundreds of thousands.
# ruff: noqa: PTH100, PTH111, PTH113, PTH116, PTH119, PTH207
import glob
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from shlex import quote

from tidemill.checkpoint import SourceFile, SourceOffset
from tidemill.checkpoint.format.folder import Checkpoint, Folder
from tidemill.checkpoint.format.source_log import log_entries, needed_entries, read_entry, source_folder
from tidemill.connectors.backlog import Backlog, Unread
from tidemill.connectors.files.addresses import file_address, is_glob, plain_path, without_glob
from tidemill.connectors.files.position import FilePosition
from tidemill.connectors.files.sink_log import FileLog
from tidemill.connectors.known_options import FILE_AGE, option_of
from tidemill.definitions.run_when import Amount, moment
from tidemill.errors import TerminalError
from tidemill.storage.local_store import LocalStore
from tidemill.storage.store import Entry, Store
from tidemill.text.plurals import pluralize

# Spark 4.2.0 reads the other files of a batch twice when the name of one has such a character.
_DOUBLING = re.compile(r"[*?\[\]{}\\]")
_MILLISECONDS = {
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_ALTERNATIVES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class UnreadFiles(Unread):
    """Files that no batch has read."""

    paths: tuple[str, ...]

    def amount(self, count: int, *, times: bool) -> Amount:
        """Return their number, bytes and times; they cost no round trip."""
        sizes, modified = [], []
        for path in self.paths:
            try:
                status = os.stat(path)
            except OSError:
                continue
            sizes.append(status.st_size)
            modified.append(moment(status.st_mtime_ns // 1_000_000))
        return Amount(
            files=len(self.paths),
            bytes=sum(sizes) if sizes else None,
            oldest_at=min(modified, default=None),
            newest_at=max(modified, default=None),
        )


@dataclass(frozen=True, slots=True)
class Relocation:
    """A folder that has moved, with the files that a source has read.

    Attributes:
        old: The absolute path that the source's log has, perhaps with a glob.
        new: The absolute path now.
    """

    old: str
    new: str

    def address(self, logged: str) -> str:
        """Return the address of a logged file in the new folder, as Spark writes it."""
        old, new = without_glob(self.old), without_glob(self.new)
        if not plain_path(logged).startswith(f"{old.rstrip('/')}/"):
            return logged
        # What follows the folder stays as Spark has escaped it.
        below = logged.split(":", 1)[1].removeprefix("//").split("/")[len(old.rstrip("/").split("/")) :]
        return "/".join([file_address(new.rstrip("/")), *below])


def waiting_files(
    path: str,
    offset: SourceOffset | None,
    *,
    checkpoint: Checkpoint | None,
    name: str,
    what: str,
    options: Mapping[str, str] | None = None,
    relocation: Relocation | None = None,
) -> Backlog:
    """Return the files of a folder that no batch has read.

    Args:
        path: A folder, a file, or a glob of them.
        offset: The file source's offset.
        checkpoint: The checkpoint, if there is one.
        name: The source's name in it.
        what: A description of the source.
        options: The file source's options.
        relocation: Where the files were when they were read, if they have moved since.

    Raises:
        TerminalError: The folder is missing or cannot be read, or an unread file has a name with which Spark
            would read other files twice.
        CheckpointFormatError: The source's log is damaged.
    """
    options = options or {}
    if "://" in plain_path(path):
        return Backlog(1, "unknown", f"{path} cannot be listed without Spark")
    present = present_files(path, options, what=what)
    position = FilePosition.of(offset)
    logged = _logged(checkpoint, name, relocation)
    # Logged by a batch that was killed before it was planned: the next batch takes them.
    unread = sum(
        count
        for part in logged
        for entry, count in part.counts.items()
        if position is None or entry > position.entry
    )
    if option_of(options, "filenameonly") == "true":
        names = {os.path.basename(path) for part in logged for path in part.paths}
        new = [path for path in present if os.path.basename(path) not in names]
    else:
        new = present
        for part in logged:
            new = [path for path in new if path not in part.paths]
    oldest_ms = _oldest_read(logged, options)
    too_old = [path for path in new if _modified_ms(path) < oldest_ms] if oldest_ms else []
    new = [path for path in new if path not in set(too_old)] if too_old else new
    _refuse_doubling(new, what)
    return Backlog(
        len(new) + unread,
        "files",
        os.path.basename(min(new)) if new else "",
        head=f"{pluralize(len(present), 'file')}, last {os.path.basename(max(present))}"
        if present
        else "0 files",
        unread=UnreadFiles(tuple(new)) if new else None,
        warning=_skipped(too_old, option_of(options, "maxfileage")) if too_old else "",
    )


def _oldest_read(logged: "list[_Logged]", options: Mapping[str, str]) -> int:
    """Return the modification time, in milliseconds, before which Spark skips files; 0 where it skips none.

    It is relative to the newest file that the source has read. Spark ignores `maxFileAge` where it reads the latest
    files first with a limit, and so do we without one, because the limit is the default.
    """
    age = FILE_AGE.fullmatch(option_of(options, "maxfileage").strip())
    newest_ms = max((part.newest_ms for part in logged), default=0)
    if age is None or option_of(options, "latestfirst") == "true":
        return 0
    return max(0, newest_ms - int(int(age[1]) * _MILLISECONDS[age[2] or "ms"]))


def _modified_ms(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except OSError:  # it was removed meanwhile
        return 0


def _skipped(files: list[str], age: str) -> str:
    more = f" and {pluralize(len(files) - 1, 'other file')}" if len(files) > 1 else ""
    return (
        f"will never read {min(files)}{more}: older than the newest file that was read by more than maxFileAge, {age}. "
        "Fix: leave maxFileAge out, or touch the file."
    )


def _refuse_doubling(files: list[str], what: str) -> None:
    bad = next((file for file in files if _DOUBLING.search(file)), None)
    if bad is not None:
        raise TerminalError(
            f"{what}: the name of {bad} has one of the characters * ? [ ] {{ }} \\ in it, and Spark would read "
            "every other file of the same batch twice.",
            fix="rename the file, or move it away.",
            code="name-is-pattern",
        )


def present_files(path: str, options: Mapping[str, str], *, what: str) -> list[str]:
    """Return the files of a folder, a file or a glob, as the file source lists them.

    Args:
        path: A folder, a file, or a glob of them.
        options: The file source's options.
        what: A description of the source.

    Raises:
        TerminalError: The folder is missing or cannot be read, or has a damaged log of a file sink.
    """
    try:
        return listed_files(path, options)
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


def listed_files(path: str, options: Mapping[str, str]) -> list[str]:
    """Return the files of a folder, a file or a glob, as the file source lists them.

    Raises:
        OSError: The folder is missing or cannot be read.
    """
    chosen = {key.lower(): value for key, value in options.items()}
    listing = _Listing(
        recursive=chosen.get("recursivefilelookup", "").lower() == "true",
        pattern=chosen.get("pathglobfilter"),
    )
    return listing.files(os.path.abspath(os.path.expanduser(plain_path(path))))


@dataclass(frozen=True, slots=True)
class _Logged:
    """The files of one entry of a file source's log.

    Attributes:
        paths: Their paths, without scheme and escapes.
        counts: How many of them each batch of the source logged.
        newest_ms: When the newest of them was modified, milliseconds since the epoch.
    """

    paths: frozenset[str]
    counts: Mapping[int, int]
    newest_ms: int = 0

    @classmethod
    def of(cls, files: Iterable[SourceFile], relocation: Relocation | None = None) -> "_Logged":
        paths: set[str] = set()
        counts: Counter[int] = Counter()
        newest_ms = 0
        for file in files:
            paths.add(plain_path(file.path if relocation is None else relocation.address(file.path)))
            counts[file.entry] += 1
            newest_ms = max(newest_ms, file.timestamp_ms)
        return cls(frozenset(paths), counts, newest_ms)


def _logged(checkpoint: Checkpoint | None, name: str, relocation: Relocation | None) -> list[_Logged]:
    """Return what a file source has logged.

    An entry with all files of the past is parsed once per process, because sensors ask every few seconds: Spark
    never changes one.
    """
    if relocation is not None:
        return [_Logged.of(logged_files(checkpoint, name), relocation)]
    if checkpoint is None:
        return []
    folder, log = Folder.at(checkpoint), source_folder(name)
    logged = []
    for entry in needed_entries(log_entries(folder.names(log))):
        where = f"{log}/{entry.name}"
        if entry.compact:
            logged.append(_compact(folder.store, where, folder.item(where)))
        else:
            logged.append(_Logged.of(read_entry(folder, where)))
    return logged


@lru_cache(maxsize=512)
def _compact(files: Store, where: str, _version: Entry | None) -> _Logged:
    return _Logged.of(read_entry(Folder.at(files), where))


def logged_files(checkpoint: Checkpoint | None, name: str) -> Iterator[SourceFile]:
    """Yield the files in a file source's log, in which Spark keeps what it has read."""
    if checkpoint is None:
        return
    folder = Folder.at(checkpoint)
    log = source_folder(name)
    for entry in needed_entries(log_entries(folder.names(log))):
        yield from read_entry(folder, f"{log}/{entry.name}")


@dataclass(slots=True)
class _Listing:
    """A listing of files as the file source does it.

    Attributes:
        recursive: Whether all subfolders count.
        pattern: A glob that names must match.
    """

    recursive: bool
    pattern: str | None
    _partitioned: bool = field(default=False, init=False)

    def files(self, path: str) -> list[str]:
        roots = [path]
        if is_glob(path):
            patterns = alternatives(path)
            roots = sorted({root for pattern in patterns for root in glob.glob(pattern, include_hidden=True)})
        own: list[str] = []
        below: list[str] = []
        for root in roots:
            if os.path.isfile(root):
                own += [root] if self._is_data(os.path.basename(root)) else []
            elif root == path and (log := FileLog(LocalStore(Path(root)))).exists():
                own += log.paths()
            else:
                self._walk(root, own, below)
        files = own + below if self.recursive or self._partitioned else own
        if self.pattern is None:
            return files
        globs = alternatives(self.pattern)
        return [file for file in files if any(fnmatchcase(os.path.basename(file), name) for name in globs)]

    def _walk(self, folder: str, own: list[str], below: list[str]) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not self._is_data(entry.name):
                    continue
                if entry.is_dir():
                    self._partitioned = self._partitioned or "=" in entry.name
                    self._walk(entry.path, below, below)
                elif entry.is_file():
                    own.append(entry.path)

    @staticmethod
    def _is_data(name: str) -> bool:
        if not name.startswith(("_", ".")):
            return not name.endswith("._COPYING_")
        if name.startswith(("_metadata", "_common_metadata")):
            return True
        return name.startswith("_") and "=" in name and not name.endswith("._COPYING_")


def alternatives(pattern: str) -> list[str]:
    """Return `a{b,c}` as `ab` and `ac`: Hadoop's globs have braces and Python's do not."""
    braces = _ALTERNATIVES.search(pattern)
    if braces is None:
        return [pattern]
    before, after = pattern[: braces.start()], pattern[braces.end() :]
    return [path for part in braces[1].split(",") for path in alternatives(f"{before}{part}{after}")]

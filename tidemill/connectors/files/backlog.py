"""The backlog in a folder: its files against the file source's own log of the files it has read.

Times do not count: a rename keeps them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from tidemill.checkpoint import SourceFile, SourceOffset
from tidemill.checkpoint.format.folder import Checkpoint, Folder
from tidemill.checkpoint.format.source_log import log_entries, needed_entries, read_entry, source_folder
from tidemill.connectors.backlog import Backlog, Unread
from tidemill.connectors.files.addresses import (
    file_address,
    is_unknown,
    plain_path,
    source_path,
    without_glob,
)
from tidemill.connectors.files.listing import Present
from tidemill.connectors.files.position import FilePosition
from tidemill.connectors.files.recent import Question, recent_files
from tidemill.connectors.known_options import FILE_AGE, option_of
from tidemill.definitions.run_when import Amount, moment
from tidemill.errors import TerminalError
from tidemill.storage.lake import Lake
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
# Fewer batches in the order of their names may be one by chance.
_ENOUGH_BATCHES = 3


@dataclass(frozen=True, slots=True)
class UnreadFiles(Unread):
    """Files that no batch has read."""

    files: Present

    def amount(self, count: int, *, times: bool) -> Amount:
        """Return their number, bytes and times; they cost no round trip."""
        status = [known for path in self.files.paths if (known := self.files.status(path)) is not None]
        modified = [moment(one.modified_ms) for one in status]
        return Amount(
            files=len(self.files.paths),
            bytes=sum(one.size for one in status) if status else None,
            oldest_at=min(modified, default=None),
            newest_at=max(modified, default=None),
        )


@dataclass(frozen=True, slots=True)
class Relocation:
    """A folder that has moved, with the files that a source has read.

    Attributes:
        old: The absolute path or the address that the source's log has, perhaps with a glob.
        new: The same now.
    """

    old: str
    new: str

    def address(self, logged: str) -> str:
        """Return the address of a logged file in the new folder, as Spark writes it."""
        old, new = without_glob(self.old).rstrip("/"), without_glob(self.new).rstrip("/")
        plain = plain_path(logged)
        if not plain.startswith(f"{old}/"):
            return logged
        # What follows the folder stays as Spark has escaped it.
        below = logged.split("/")[old.count("/") - plain.count("/") :]
        return "/".join([file_address(new), *below])


def waiting_files(
    path: str,
    offset: SourceOffset | None,
    *,
    lake: Lake,
    checkpoint: Checkpoint | None,
    name: str,
    what: str,
    options: Mapping[str, str] | None = None,
    relocation: Relocation | None = None,
    is_ordered: bool = False,
) -> Backlog:
    """Return the files of a folder that no batch has read.

    Args:
        path: A folder, a file, or a glob of them.
        offset: The file source's offset.
        lake: The lake of the target, which says how S3 is reached.
        checkpoint: The checkpoint, if there is one.
        name: The source's name in it.
        what: A description of the source.
        options: The file source's options.
        relocation: Where the files were when they were read, if they have moved since.
        is_ordered: Whether new files have names after those of all earlier ones.

    Raises:
        TerminalError: The folder is missing or cannot be read, or an unread file has a name with which Spark
            would read other files twice.
        CheckpointFormatError: The source's log is damaged.
        TransientError: The store of the files does not answer.
    """
    options = options or {}
    if is_unknown(source_path(path)):
        return Backlog(1, "unknown", f"{path} cannot be listed without Spark")
    position = FilePosition.of(offset)
    read = _Read(_logged(checkpoint, name, relocation), option_of(options, "filenameonly") == "true")
    # Logged by a batch that was killed before it was planned: the next batch takes them.
    planned = sum(
        count
        for part in read.logged
        for entry, count in part.counts.items()
        if position is None or entry > position.entry
    )
    recent = recent_files(
        Question(
            path=path,
            options=options,
            lake=lake,
            what=what,
            reader=str(checkpoint),
            unread=read.others,
            newest_read=read.newest,
            is_ordered=is_ordered,
            seems_ordered=read.seems_ordered,
        )
    )
    new = read.others(recent.present.paths)
    oldest_ms = _oldest_read(read.logged, options)
    too_old = [path for path in new if _modified_ms(recent.present, path) < oldest_ms] if oldest_ms else []
    new = [path for path in new if path not in set(too_old)] if too_old else new
    _refuse_doubling(new, what)
    known = ["the newest files" if recent.count is None else pluralize(recent.count, "file")]
    return Backlog(
        len(new) + planned,
        "files",
        _name_of(min(new)) if new else "",
        head=", last ".join([*known, *([_name_of(recent.last)] if recent.last else [])]),
        unread=UnreadFiles(recent.present.only(new)) if new else None,
        warning=_skipped(too_old, option_of(options, "maxfileage")) if too_old else "",
    )


def _oldest_read(logged: "Sequence[_Logged]", options: Mapping[str, str]) -> int:
    """Return the modification time, in milliseconds, before which Spark skips files; 0 where it skips none.

    It is relative to the newest file that the source has read. Spark ignores `maxFileAge` where it reads the latest
    files first with a limit, and so do we without one, because the limit is the default.
    """
    age = FILE_AGE.fullmatch(option_of(options, "maxfileage").strip())
    newest_ms = max((part.newest_ms for part in logged), default=0)
    if age is None or option_of(options, "latestfirst") == "true":
        return 0
    return max(0, newest_ms - int(int(age[1]) * _MILLISECONDS[age[2] or "ms"]))


def _modified_ms(present: Present, path: str) -> int:
    status = present.status(path)
    return 0 if status is None else status.modified_ms  # it was removed meanwhile


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


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


@dataclass(frozen=True, slots=True)
class _Logged:
    """The files of one entry of a file source's log.

    Attributes:
        paths: Their paths, without scheme and escapes.
        counts: How many of them each batch of the source logged.
        ends: The first and the last of them in each batch of the source, in the order of their paths.
        newest_ms: When the newest of them was modified, milliseconds since the epoch.
    """

    paths: frozenset[str]
    counts: Mapping[int, int]
    ends: Mapping[int, tuple[str, str]]
    newest_ms: int = 0

    @classmethod
    def of(cls, files: Iterable[SourceFile], relocation: Relocation | None = None) -> "_Logged":
        paths: set[str] = set()
        counts: Counter[int] = Counter()
        ends: dict[int, tuple[str, str]] = {}
        newest_ms = 0
        for file in files:
            path = plain_path(file.path if relocation is None else relocation.address(file.path))
            first, last = ends.get(file.entry, (path, path))
            paths.add(path)
            counts[file.entry] += 1
            ends[file.entry] = min(first, path), max(last, path)
            newest_ms = max(newest_ms, file.timestamp_ms)
        return cls(frozenset(paths), counts, ends, newest_ms)


@dataclass(frozen=True, slots=True)
class _Read:
    """The files that a source has logged.

    Attributes:
        logged: The entries of its log.
        by_name: Whether a file with the name of another one counts as read (`fileNameOnly`).
    """

    logged: "Sequence[_Logged]"
    by_name: bool

    def others(self, paths: list[str]) -> list[str]:
        """Return those of some files that are not among them."""
        if self.by_name:
            names = {_name_of(path) for part in self.logged for path in part.paths}
            return [path for path in paths if _name_of(path) not in names]
        for part in self.logged:
            paths = [path for path in paths if path not in part.paths]
        return paths

    @property
    def newest(self) -> str:
        """The path that comes last; "" where nothing is read."""
        return max((last for part in self.logged for _, last in part.ends.values()), default="")

    @property
    def seems_ordered(self) -> bool:
        """Whether the files of each batch come after those of the batches before it."""
        ends = [end for _, end in sorted(end for part in self.logged for end in part.ends.items())]
        pairs = pairwise(ends)
        return len(ends) >= _ENOUGH_BATCHES and all(last < first for (_, last), (first, _) in pairs)


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

"""`sources/<name or position>/N`: the file source's own log of which files belong to which of its entries.

Every tenth entry is a `N.compact` that repeats all entries before it; only what a start needs is kept.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipelines.streaming.checkpoint.errors import CheckpointFormatError
from pipelines.streaming.checkpoint.files import Folder
from pipelines.streaming.checkpoint.logfile import long_field, parse_object, parse_version
from pipelines.streaming.checkpoint.tail import opened

KNOWN_VERSION = 1
MAX_LINE_BYTES = 4 << 20
"""The longest line that is accepted; a line holds one path and is some hundred bytes long."""

_END_BYTES = 64 << 10
_ENTRY = re.compile(r"(0|[1-9][0-9]{0,18})(\.compact)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file that a file source has taken in.

    Attributes:
        path: Its address, as Spark writes it (`file:///...`).
        timestamp_ms: Its modification time when it was taken in.
        entry: The entry of the source's log it belongs to.
    """

    path: str
    timestamp_ms: int
    entry: int


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One file of a source's log.

    Attributes:
        number: The entry.
        compact: Whether it repeats all entries before it.
    """

    number: int
    compact: bool

    @classmethod
    def parse(cls, name: str) -> "LogEntry | None":
        """The entry that a file name stands for; None for every other name."""
        match = _ENTRY.fullmatch(name)
        return None if match is None else cls(int(match[1]), match[2] is not None)

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.number}.compact" if self.compact else str(self.number)


def log_entries(names: list[str]) -> list[LogEntry]:
    """The entries among the names of a source's folder, ascending."""
    found = (LogEntry.parse(name) for name in names if not name.startswith("."))
    return sorted((entry for entry in found if entry), key=lambda entry: (entry.number, entry.compact))


def needed_entries(entries: list[LogEntry]) -> list[LogEntry]:
    """What a start reads: the newest compact entry and all after it, or all where none is compact."""
    compacts = [place for place, entry in enumerate(entries) if entry.compact]
    return entries[compacts[-1] :] if compacts else entries


def source_folder(key: str) -> str:
    """The folder of a source's log below the checkpoint."""
    return f"sources/{key}"


def read_entry(folder: Folder, where: str) -> Iterator[SourceFile]:
    """The files in one entry of a source's log, line by line: an entry may hold a million.

    Raises:
        CheckpointFormatError: damaged, a line longer than any path, or of an unknown version.
    """
    lines = _lines(folder, where)
    first = next(lines, None)
    if first is None:
        raise CheckpointFormatError(where, "The file is empty.", code="empty-file")
    parse_version(where, first.strip(), known=KNOWN_VERSION)
    for line in lines:
        yield _file(where, line)


def check_ends(folder: Folder, where: str) -> SourceFile | None:
    """Reads the beginning and the end of an entry, however long: enough to see that it was written whole.

    Returns:
        The last file in it; None when it holds none.

    Raises:
        CheckpointFormatError: empty, cut off at the end, or of an unknown version.
    """
    head, end = folder.ends(where, _END_BYTES)
    first, line_end, rest = head.partition(b"\n")
    if not head:
        raise CheckpointFormatError(where, "The file is empty.", code="empty-file")
    parse_version(where, _text(where, first).strip(), known=KNOWN_VERSION)
    if line_end and rest:
        last = (end or rest).rstrip(b"\n").rpartition(b"\n")[2]
        return _file(where, _text(where, last))
    return None


def _file(where: str, line: str) -> SourceFile:
    fields = parse_object(where, line)
    path = fields.get("path")
    if not isinstance(path, str):
        raise CheckpointFormatError(where, "A line has no path.", code="unparseable-file")
    return SourceFile(path, long_field(where, fields, "timestamp"), long_field(where, fields, "batchId"))


def file_source_paths(path: str | os.PathLike[str], source: str) -> Iterator[str]:
    """The address of every file that a file source has taken in, once each.

    That includes what a killed batch logged and never read: Spark gives it to the next batch.

    Args:
        path: The checkpoint.
        source: The source's name, or its position in a checkpoint without names.

    Raises:
        NotACheckpointError: the path is no checkpoint.
        CheckpointFormatError: an entry is damaged.
    """
    folder = opened(path)
    place = source_folder(source)
    for entry in needed_entries(log_entries(folder.names(place))):
        for file in read_entry(folder, f"{place}/{entry.name}"):
            yield file.path


def _lines(folder: Folder, where: str) -> Iterator[str]:
    rest = b""
    for block in folder.blocks(where):
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield _text(where, line)
        if len(rest) > MAX_LINE_BYTES:
            raise CheckpointFormatError(
                where, f"It has a line of more than {MAX_LINE_BYTES} bytes.", code="file-too-large"
            )
    if rest:
        yield _text(where, rest)


def _text(where: str, line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise CheckpointFormatError(where, "A line is not UTF-8 text.", code="unparseable-file") from None

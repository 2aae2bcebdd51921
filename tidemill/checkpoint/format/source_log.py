"""`sources/<name or position>/N`: the file source's own log of the input files in each of its entries.

Every tenth entry is an `N.compact` that repeats all entries before it; Spark keeps only what a start needs.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidemill.checkpoint.format.errors import CheckpointFormatError
from tidemill.checkpoint.format.folder import Checkpoint, Folder
from tidemill.checkpoint.format.logfile import long_field, parse_object, parse_version
from tidemill.checkpoint.format.logs import open_checkpoint

KNOWN_VERSION = 1
MAX_LINE_BYTES = 4 << 20
"""The length limit of a line; a line has one path and a few hundred bytes."""

_END_BYTES = 64 << 10
_ENTRY = re.compile(r"(0|[1-9][0-9]{0,18})(\.compact)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One input file that a file source has logged.

    Attributes:
        path: Its address, as Spark writes it (`file:///...`).
        timestamp_ms: Its modification time when it was logged.
        entry: The entry of the source's log that it belongs to.
    """

    path: str
    timestamp_ms: int
    entry: int


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One file of a source's log.

    Attributes:
        number: The entry.
        compact: True if it repeats all entries before it.
    """

    number: int
    compact: bool

    @classmethod
    def parse(cls, name: str) -> "LogEntry | None":
        """Return the entry of a file name; None for every other name."""
        match = _ENTRY.fullmatch(name)
        return None if match is None else cls(int(match[1]), match[2] is not None)

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"{self.number}.compact" if self.compact else str(self.number)


def log_entries(names: Iterable[str]) -> list[LogEntry]:
    """Return the entries among the names of a source's folder, ascending."""
    entries = (LogEntry.parse(name) for name in names if not name.startswith("."))
    return sorted((entry for entry in entries if entry), key=lambda entry: (entry.number, entry.compact))


def needed_entries(entries: list[LogEntry]) -> list[LogEntry]:
    """Return the entries that a start reads: the newest compact one and all after it, or all without one."""
    compacts = [position for position, entry in enumerate(entries) if entry.compact]
    return entries[compacts[-1] :] if compacts else entries


def source_folder(key: str) -> str:
    """Return the folder of a source's log, relative to the checkpoint."""
    return f"sources/{key}"


def initial_offset(folder: Folder, where: str) -> str:
    """Return where Spark has decided that a source begins: a version line and a value, after a zero byte.

    Raises:
        CheckpointFormatError: The file is damaged.
    """
    version, _, value = folder.read(where).removeprefix(b"\0").decode("utf-8", "replace").partition("\n")
    if version.strip() != "v1":
        raise CheckpointFormatError(where, "It has no version line.", code="unparseable-file")
    return value


def read_entry(folder: Folder, where: str) -> Iterator[SourceFile]:
    """Yield the files in one entry of a source's log, line by line: an entry may have a million.

    Raises:
        CheckpointFormatError: The entry is damaged, has a line longer than any path, or is of an unsupported
            version.
    """
    lines = _lines(folder, where)
    first = next(lines, None)
    if first is None:
        raise CheckpointFormatError(where, "The file is empty.", code="empty-file")
    parse_version(where, first.strip(), known=KNOWN_VERSION)
    for line in lines:
        yield _file(where, line)


def check_ends(folder: Folder, where: str) -> SourceFile | None:
    """Read the beginning and the end of an entry of any size: enough to see that it is complete.

    Returns:
        The last file in the entry; None if it has none.

    Raises:
        CheckpointFormatError: The entry is empty, truncated, or of an unsupported version.
    """
    head, end = folder.ends(where, _END_BYTES)
    first, line_end, rest = head.partition(b"\n")
    if not head:
        raise CheckpointFormatError(where, "The file is empty.", code="empty-file")
    parse_version(where, _decoded(where, first).strip(), known=KNOWN_VERSION)
    if line_end and rest:
        last = (end or rest).rstrip(b"\n").rpartition(b"\n")[2]
        return _file(where, _decoded(where, last))
    return None


def _file(where: str, line: str) -> SourceFile:
    fields = parse_object(where, line)
    path = fields.get("path")
    if not isinstance(path, str):
        raise CheckpointFormatError(where, "A line has no path.", code="unparseable-file")
    return SourceFile(path, long_field(where, fields, "timestamp"), long_field(where, fields, "batchId"))


def file_source_paths(checkpoint: Checkpoint, source: str) -> Iterator[str]:
    """Yield the address of every input file that a file source has logged, once each.

    The files include those that a killed batch logged and never read: Spark reads them in the next batch.

    Args:
        checkpoint: The checkpoint: its store, or its path.
        source: The source's name, or its position in a checkpoint without names.

    Raises:
        NotACheckpointError: The path is not a checkpoint.
        CheckpointFormatError: An entry is damaged.
    """
    folder = open_checkpoint(checkpoint)
    log = source_folder(source)
    for entry in needed_entries(log_entries(folder.names(log))):
        for file in read_entry(folder, f"{log}/{entry.name}"):
            yield file.path


def _lines(folder: Folder, where: str) -> Iterator[str]:
    rest = b""
    for block in folder.blocks(where):
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield _decoded(where, line)
        if len(rest) > MAX_LINE_BYTES:
            raise CheckpointFormatError(
                where, f"It has a line of more than {MAX_LINE_BYTES} bytes.", code="file-too-large"
            )
    if rest:
        yield _decoded(where, rest)


def _decoded(where: str, line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise CheckpointFormatError(where, "A line is not UTF-8.", code="unparseable-file") from None

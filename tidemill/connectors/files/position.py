"""The position in a folder: the last entry of the file source's own log that is read."""

from dataclasses import dataclass
from typing import Any, Self

from tidemill.checkpoint import CheckpointFormatError, SourceOffset
from tidemill.checkpoint.format.folder import Folder
from tidemill.checkpoint.format.logfile import is_long
from tidemill.checkpoint.format.source_log import (
    LogEntry,
    check_ends,
    log_entries,
    needed_entries,
    read_entry,
)
from tidemill.checkpoint.positions import Position, SourceFolder
from tidemill.checkpoint.verify.findings import Findings
from tidemill.checkpoint.verify.logs import RESTORE, START_OVER


@dataclass(frozen=True, slots=True)
class FilePosition(Position):
    """The position of a stream in a folder of files.

    Attributes:
        entry: The last entry of the source's log that is read.
    """

    kind = "file"
    entry: int

    @classmethod
    def of(cls, offset: SourceOffset | None) -> Self | None:
        """Return the position in an offset; None where it is not one of a file source."""
        value: Any = None if offset is None else offset.value
        if not isinstance(value, dict) or set(value) != {"logOffset"} or not is_long(value["logOffset"]):
            return None
        return cls(int(value["logOffset"]))

    @property
    def last_log_entry(self) -> int:
        """The last entry of the log."""
        return self.entry

    def describe(self) -> str:
        """Return the entry of the log."""
        return f"entry {self.entry} of the source's log"

    def went_back(self, before: Position) -> str:
        """Describe how far the log went back; empty if it did not."""
        is_behind = isinstance(before, FilePosition) and self.entry < before.entry
        return (
            f"from {before.entry} to {self.entry}" if isinstance(before, FilePosition) and is_behind else ""
        )

    def check_file(self, folder: Folder, path: str, name: str, *, full: bool) -> None:
        """Check an entry of the log."""
        if (entry := LogEntry.parse(name)) is None:
            return
        last = None if full else check_ends(folder, path)
        files = read_entry(folder, path) if full else [last] if last else []
        for file in files:
            if not entry.compact and file.entry != entry.number:
                what = f"Its lines belong to entry {file.entry}: Spark ignores them."
                raise CheckpointFormatError(path, what, code="wrong-entry")

    def check_folder(self, own: SourceFolder) -> None:
        """Check that the log reaches the offsets and has no gap."""
        if self.entry < 0:
            return
        entries = log_entries(own.folder.names(own.log))
        newest = entries[-1].number if entries else None
        if newest is None or newest < self.entry:
            own.findings.add(
                "error",
                "source-log-behind",
                own.log,
                f"The offsets are at entry {self.entry}, and the source's log "
                + ("is missing" if newest is None else f"ends at entry {newest}")
                + ": the next start fails, or silently skips new files.",
                f"Restore the folder from a copy; without one, {START_OVER}.",
            )
            return
        needed = needed_entries(entries)
        own.folder.fetch(f"{own.log}/{entry.name}" for entry in needed)
        _gaps(own.log, needed, own.findings)
        done = own.done.entry if isinstance(own.done, FilePosition) else -1
        for entry in needed:
            problem = own.problem(f"{own.log}/{entry.name}")
            if problem is None:
                continue
            if problem.code != "wrong-entry":
                own.findings.add_problem(
                    problem, consequence="The next start reads it and fails.", fix=RESTORE
                )
            elif done < entry.number <= self.entry:
                own.findings.add_problem(
                    problem, consequence="The repeated batch loses their files.", fix=RESTORE
                )
            else:
                own.findings.add_problem(
                    problem, severity="warning", consequence="No future batch needs them."
                )


def _gaps(log: str, needed: list[LogEntry], findings: Findings) -> None:
    numbers = {entry.number for entry in needed}
    first = needed[0].number if needed[0].compact else 0
    missing = [number for number in range(first, first + len(numbers) + 1) if number not in numbers]
    if missing and missing[0] < needed[-1].number:
        findings.add(
            "error",
            "source-log-gap",
            f"{log}/{missing[0]}",
            f"The source's log has no entry {missing[0]}, and a start reads all entries from "
            + (needed[0].name if needed[0].compact else "0")
            + " on"
            + ": the next start fails.",
            RESTORE,
        )

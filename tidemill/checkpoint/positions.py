"""A position: what a kind of source makes of an offset. The kinds themselves are in the connectors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tidemill.checkpoint.format.source_offset import SourceOffset

if TYPE_CHECKING:
    from tidemill.checkpoint.format.errors import CheckpointFormatError
    from tidemill.checkpoint.format.folder import Folder
    from tidemill.checkpoint.verify.findings import Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFolder:
    """A source's own folder in a checkpoint, while it is verified.

    Attributes:
        log: The source's folder below it.
        done: The position up to which no batch is repeated; None before the first.
        problem: The problem of a file that the next start reads; None if the file is sound.
        findings: The findings so far.
    """

    folder: "Folder"
    log: str
    done: "Position | None"
    problem: "Callable[[str], CheckpointFormatError | None]"
    findings: "Findings"


class Position:
    """The position up to which a source is read. This base knows nothing about it."""

    kind: str = "unknown"
    """The kind of source that wrote it."""

    @property
    def last_log_entry(self) -> int | None:
        """The last entry that counts in the source's own log of what it reads; None where it keeps no log."""
        return None

    @property
    def parts(self) -> int:
        """The parts in which it is read side by side, where the source has such."""
        return 1

    @classmethod
    def of(cls, offset: SourceOffset | None) -> Self | None:  # noqa: ARG003 - the base recognizes none
        """Return the position in an offset; None where a source of this kind did not write it."""
        return None

    def describe(self) -> str:
        """Return a description for people; empty where only the offset itself says it."""
        return ""

    def place(self) -> str:
        """Return a short description; empty where the offset itself is short."""
        return ""

    def went_back(self, before: "Position") -> str:  # noqa: ARG002 - likewise
        """Describe how far it is behind an earlier position; empty if it is not, or cannot be compared."""
        return ""

    def check_file(self, folder: "Folder", path: str, name: str, *, full: bool) -> None:
        """Check a file in the source's own folder.

        Args:
            path: The file's path in it.
            full: True to read everything.

        Raises:
            CheckpointFormatError: The file is damaged.
        """

    def check_folder(self, own: SourceFolder) -> None:
        """Check that the source's own folder has what its next start needs, and add findings."""


Recognizer = Callable[[SourceOffset], Position]
"""Returns the position in an offset; an instance of the base where no kind of source knows it."""


def describe_offset(offset: SourceOffset, recognize: Recognizer) -> str:
    """Describe the offset up to which a source is read."""
    if offset.raw is None:
        return "nothing yet"
    return recognize(offset).describe() or offset.raw

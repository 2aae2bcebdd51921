"""The part of a source that is read again: what is close to a range in the source's own time.

A file has its modification time, as the stream's log has it; a message its timestamp; a version of a table the time of
its commit. Nothing is read that the stream has not read.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.checkpoint import SourceFile

Offsets = Mapping[tuple[str, int], int]
"""An offset per topic and partition."""


@dataclass(frozen=True, slots=True)
class Period:
    """A period of time, in milliseconds since the epoch; both ends belong to it.

    Attributes:
        first_ms: Its first moment.
    """

    first_ms: int
    last_ms: int

    def has(self, time_ms: int) -> bool:
        """Return whether a moment belongs to it."""
        return self.first_ms <= time_ms <= self.last_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpan:
    """The part of one source that is read. Without files, offsets and version: all that the stream has read.

    Attributes:
        reads: What it is, for people: `12 of 400 files of feed orders`.
        is_empty: Whether there is nothing in it.
        missing: What of it the source no longer has, a sentence each.
        files: The files, of a folder.
        begins: The first offset of each partition, of topics.
        ends: The offset after the last one, likewise.
        first_version: The first version, of a table.
        end: The offset up to which topics or a table are read, as Spark writes it.
    """

    reads: str
    is_empty: bool = False
    missing: tuple[str, ...] = ()
    files: tuple[SourceFile, ...] | None = None
    begins: Offsets | None = None
    ends: Offsets | None = None
    first_version: int | None = None
    end: str | None = None

    @property
    def is_part(self) -> bool:
        """Whether less is read than the stream has read."""
        return self.files is not None or self.end is not None

"""What a connector answers: when data expires, where a stream starts or continues, what is read again, what is shown.

A part of a source is close to a range in the source's own time: a file has its modification time, as the stream's log
has it; a message its timestamp; a version of a table the time of its commit. Nothing is read that the stream has not
read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from tidemill.checkpoint import SourceFile


@dataclass(frozen=True, slots=True)
class Expiry:
    """When unread data may be removed.

    Attributes:
        at_ms: The earliest time, milliseconds since the epoch.
        retention: The retention that removes it.
        what: What is removed, and by which setting; for people.
    """

    at_ms: int
    retention: timedelta
    what: str


def milliseconds(length: timedelta) -> int:
    """Return a length of time in milliseconds."""
    return length // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where one source starts.

    Attributes:
        offset: The offset up to which it counts as read, as Spark writes it.
        files: The files that count as read, of a folder.
        skipped: What is never read, for people; empty where nothing is.
        doubled: What is read a second time; empty where nothing is.
    """

    offset: str
    files: tuple[SourceFile, ...] = ()
    skipped: str = ""
    doubled: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """How a source continues in another binding.

    Attributes:
        effects: What follows from it, one sentence each.
        address: The address now of a file in the source's own log; None where it keeps none.
        offset: The offset at which it continues, as Spark writes it; None where it stays.
        renamed: The same position in the new binding, of any offset.
        is_exact: Whether it continues where it was, so that a planned batch can be repeated.
    """

    effects: tuple[str, ...]
    address: Callable[[str], str] | None = None
    offset: str | None = None
    renamed: Callable[[str], str] = str
    is_exact: bool = True


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


SOURCE = "tidemill/source"
"""The metadata entry with the topic, pattern or path as it was declared."""
TABLE_NAME = "dagster/table_name"
"""Dagster's own metadata entry with the name of a table in a catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalData:
    """What streams read and no stream of the pipeline writes.

    Attributes:
        path: The parts of its asset key, valid in Dagster whatever the original is (`external_keys.py`):
            `("feed", "ad-clicks")`, `("kafka", <cluster>, <topic>)`, `("kafka", <cluster>, "pattern", ...)`,
            `("files", <folders> ...)`, `("delta", <folders> ...)`, `("postgres", <database>, <schema>, <table>)`.
        kind: `kafka`, `file`, `deltalake` or `postgres`; None where only the target decides and there is none.
        description: A short description.
        metadata: Further facts; `tidemill/source` is the topic, pattern or path as it was declared.
    """

    path: tuple[str, ...]
    kind: str | None = None
    description: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

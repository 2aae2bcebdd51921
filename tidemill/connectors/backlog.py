"""A backlog: a count and its unit, and where the unread data is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.definitions.bounds import Unit
from tidemill.target.target import KafkaCluster


@dataclass(frozen=True, slots=True)
class UnreadFiles:
    """Files that no batch has read.

    Attributes:
        paths: Their paths.
    """

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnreadMessages:
    """Partitions with unread messages.

    Attributes:
        cluster: The cluster.
        positions: The offset of the first unread message, by topic and partition.
    """

    cluster: KafkaCluster
    positions: Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class UnreadVersions:
    """Versions of a Delta table that are not read, or only in part.

    Attributes:
        folder: The table's folder.
        versions: The versions whose commit the log still has, ascending.
    """

    folder: Path
    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Backlog:
    """The data of one source that is not read yet. It is true when there is some.

    It may err only towards more: data that cannot be counted from outside counts as one.

    Attributes:
        count: How many.
        unit: The unit; versions are those of a Delta table, from the first one on that changes data.
        detail: Where the data is, or why it could not be counted; for people.
        head: The newest data in the source, read or not: the end offsets, the number of files and the last name,
            or the table's version. Empty where it is unknown. It changes when data arrives.
        unread: Where the unread data is; None where there is none, or it is unknown.
    """

    count: int
    unit: Unit
    detail: str = ""
    head: str = field(default="", kw_only=True)
    unread: UnreadFiles | UnreadMessages | UnreadVersions | None = field(
        default=None, kw_only=True, repr=False, compare=False
    )

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        return f"{self.count} {self.unit.removesuffix('s') if self.count == 1 else self.unit}"

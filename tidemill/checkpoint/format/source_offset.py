"""One source's offset: a JSON string whose form shows which kind of source wrote it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tidemill.checkpoint.format.logfile import is_long, parse_json

SourceKind = Literal["file", "kafka", "delta", "rate", "rate-micro-batch", "unknown"]


@dataclass(frozen=True, slots=True)
class DeltaOffset:
    """The position of a stream in a Delta table.

    Attributes:
        reservoir_id: The table's id; another id is another table.
        version: The version that is read next, or is being read.
        index: The last file of that version that was read; negative if none was.
        is_starting: True if the version is read as the snapshot that a new stream starts from.
    """

    reservoir_id: str
    version: int
    index: int
    is_starting: bool


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The offset up to which a batch reads one source.

    Attributes:
        name: The source's name (offset log version 2); None where sources are identified by position.
        index: The source's position (version 1); None where sources have names.
        raw: The offset's JSON string; None if the source had no data yet.
        kind: The kind of source that wrote it. `rate` is any source that counts rows with one number.
        value: The parsed JSON; None if `raw` is None.
    """

    name: str | None
    index: int | None
    raw: str | None
    kind: SourceKind
    value: Any

    @classmethod
    def parse(cls, where: str, name: str | None, index: int | None, raw: str | None) -> "SourceOffset":
        """Parse the offset in one line of an offset log.

        Raises:
            CheckpointFormatError: The line is not JSON.
        """
        value = None if raw is None else parse_json(where, raw)
        return cls(name, index, raw, _kind(value), value)

    @property
    def key(self) -> str:
        """The name or the position: the source's folder below `sources/`."""
        return self.name if self.name is not None else str(self.index)

    @property
    def log_offset(self) -> int | None:
        """The last entry of the file source's log that is read; None for other kinds."""
        return int(self.value["logOffset"]) if self.kind == "file" else None

    @property
    def partitions(self) -> Mapping[str, Mapping[int, int]]:
        """Topic -> partition -> the next record to read; empty for other kinds."""
        if self.kind != "kafka":
            return {}
        return {topic: {int(p): int(o) for p, o in offsets.items()} for topic, offsets in self.value.items()}

    @property
    def delta(self) -> DeltaOffset | None:
        """The position in a Delta table; None for other kinds."""
        if self.kind != "delta":
            return None
        return DeltaOffset(
            reservoir_id=str(self.value["reservoirId"]),
            version=int(self.value["reservoirVersion"]),
            index=int(self.value["index"]),
            is_starting=bool(self.value["isStartingVersion"]),
        )

    @property
    def rows(self) -> int | None:
        """The row count of a `rate` or `rate-micro-batch` offset; None for other kinds."""
        if self.kind == "rate":
            return int(self.value)
        return int(self.value["offset"]) if self.kind == "rate-micro-batch" else None


def _kind(value: Any) -> SourceKind:
    if is_long(value):
        return "rate"
    if not isinstance(value, dict):
        return "unknown"
    if set(value) == {"logOffset"} and is_long(value["logOffset"]):
        return "file"
    if {"sourceVersion", "reservoirId", "reservoirVersion"} <= set(value):
        return "delta" if _is_delta(value) else "unknown"
    if set(value) == {"offset", "timestamp"} and is_long(value["offset"]):
        return "rate-micro-batch"
    return "kafka" if value and all(_is_topic(offsets) for offsets in value.values()) else "unknown"


def _is_delta(value: dict[str, Any]) -> bool:
    numbers = is_long(value["reservoirVersion"]) and is_long(value.get("index"))
    return numbers and isinstance(value.get("isStartingVersion"), bool)


def _is_topic(value: Any) -> bool:
    return isinstance(value, dict) and all(
        partition.isascii() and partition.isdigit() and len(partition) < 10 and is_long(offset)  # noqa: PLR2004
        for partition, offset in value.items()
    )

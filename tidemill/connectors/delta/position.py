"""The position in a Delta table, as Delta's streaming source writes it."""

import json
from dataclasses import dataclass
from typing import Any, Self

from tidemill.checkpoint import SourceOffset
from tidemill.checkpoint.format.logfile import is_long
from tidemill.checkpoint.positions import Position


@dataclass(frozen=True, slots=True)
class DeltaPosition(Position):
    """The position of a stream in a Delta table.

    Attributes:
        reservoir_id: The table's id; another id is another table.
        version: The version that is read next, or is being read.
        index: The last file of that version that was read; negative if none was.
        is_starting: True if the version is read as the snapshot that a new stream starts from.
    """

    kind = "delta"
    reservoir_id: str
    version: int
    index: int
    is_starting: bool

    @classmethod
    def of(cls, offset: SourceOffset | None) -> Self | None:
        """Return the position in an offset; None where it is not one in a table."""
        value: Any = None if offset is None else offset.value
        if not isinstance(value, dict) or not value.keys() >= {
            "sourceVersion",
            "reservoirId",
            "reservoirVersion",
        }:
            return None
        version: Any = value["reservoirVersion"]
        index: Any = value.get("index")
        starting: Any = value.get("isStartingVersion")
        if not is_long(version) or not is_long(index) or not isinstance(starting, bool):
            return None
        return cls(str(value["reservoirId"]), version, index, starting)

    def describe(self) -> str:
        """Return the version, and the file where a part of it is read."""
        if self.is_starting:
            return f"snapshot of version {self.version}, up to file {self.index}"
        if self.index >= 0:
            return f"version {self.version}, up to file {self.index}"
        return f"everything before version {self.version}"

    def place(self) -> str:
        """Return the version, and the file where a part of it is read."""
        return f"version {self.version}" + ("" if self.index == -1 else f", file {self.index}")

    def went_back(self, before: Position) -> str:
        """Describe how far the version or the file went back; empty if it did not, or in another table."""
        if not isinstance(before, DeltaPosition) or self.reservoir_id != before.reservoir_id:
            return ""
        if self.version < before.version:
            return f"from version {before.version} to {self.version}"
        if self.version == before.version and self.index < before.index:
            return f"from file {before.index} to file {self.index} of version {self.version}"
        return ""


def at_version(raw: str, version: int) -> str:
    """Return an offset of a table that has read everything before a version, as Delta writes it."""
    fields = json.loads(raw) | {"reservoirVersion": version, "index": -1, "isStartingVersion": False}
    return json.dumps(fields, separators=(",", ":"))

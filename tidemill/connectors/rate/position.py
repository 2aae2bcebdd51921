"""The position in generated rows: how many there were."""

from dataclasses import dataclass
from typing import Any, Self

from tidemill.checkpoint import CheckpointFormatError, SourceOffset
from tidemill.checkpoint.format.folder import Folder
from tidemill.checkpoint.format.logfile import is_long, parse_json
from tidemill.checkpoint.format.source_log import initial_offset
from tidemill.checkpoint.positions import Position, SourceFolder
from tidemill.checkpoint.verify.logs import RESTORE


@dataclass(frozen=True, slots=True)
class RowPosition(Position):
    """The number of rows that a source has emitted.

    Attributes:
        kind: `rate-micro-batch`, or `rate`: any source that counts rows with one number.
    """

    rows: int
    kind: str

    @classmethod
    def of(cls, offset: SourceOffset | None) -> Self | None:
        """Return the position in an offset; None where it does not count rows."""
        value: Any = None if offset is None else offset.value
        if is_long(value):
            return cls(int(value), "rate")
        counts = (
            isinstance(value, dict) and set(value) == {"offset", "timestamp"} and is_long(value["offset"])
        )
        return cls(int(value["offset"]), "rate-micro-batch") if counts else None

    def describe(self) -> str:
        """Return the number of rows."""
        return f"{self.rows} rows"

    def went_back(self, before: Position) -> str:
        """Describe how far the number went back; empty if it did not."""
        is_behind = isinstance(before, RowPosition) and before.kind == self.kind and self.rows < before.rows
        return f"from {before.rows} to {self.rows}" if isinstance(before, RowPosition) and is_behind else ""

    def check_file(self, folder: Folder, path: str, name: str, *, full: bool) -> None:
        """Check the time of the first start, which only the `rate` source keeps."""
        if (
            self.kind == "rate"
            and name == "0"
            and not is_long(parse_json(path, initial_offset(folder, path)))
        ):
            raise CheckpointFormatError(path, "It is not a number.", code="unparseable-file")

    def check_folder(self, own: SourceFolder) -> None:
        """Check that the time of the first start can be read."""
        where = f"{own.log}/0"
        if self.kind == "rate" and own.folder.has(where) and (problem := own.problem(where)):
            own.findings.add_problem(problem, consequence="The source reads it when it starts.", fix=RESTORE)

"""Coverage: which ranges of a stream's table were computed by which operation, and so by which code.

Everything is read from the records of the finished operations. A backfill covers its range, a rebuild the whole table,
and a later operation covers what an earlier one has computed. A rewind takes back the backfills that were published
after the version that it restores, and a reset that replaces the table takes back everything.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from tidemill.errors import TerminalError
from tidemill.records.stream_records import StreamRecords

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemill.definitions.stream import Stream
    from tidemill.records.operation import Operation
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName

By = TypeVar("By")


@dataclass(frozen=True, slots=True)
class Span(Generic[By]):
    """A range of values, and what computed it.

    Values are compared as strings: that is the order of dates, and of times of one time zone, in ISO-8601.

    Attributes:
        begin: The first value; None where there is no lower bound.
        end: The first value that is not in the range; None where there is no upper bound.
        by: What computed it.
    """

    begin: str | None
    end: str | None
    by: By

    def before(self, value: str | None) -> "Span[By] | None":
        """Return the part before a value; None where there is none."""
        if value is None or (self.begin is not None and value <= self.begin):
            return None
        return self if self.end is not None and self.end <= value else Span(self.begin, value, self.by)

    def since(self, value: str | None) -> "Span[By] | None":
        """Return the part from a value on; None where there is none."""
        if value is None or (self.end is not None and self.end <= value):
            return None
        return self if self.begin is not None and value <= self.begin else Span(value, self.end, self.by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Which ranges of a stream's table were computed by which operation.

    Attributes:
        column: The column that `backfill_by` names.
        ranges: All its values in order, without gaps; `by` is None for rows of the stream's own runs.
        other: Backfills by another column or type, whose rows cannot be found among these ranges.
    """

    stream: "StreamName"
    column: str
    ranges: "tuple[Span[Operation | None], ...]"
    other: "tuple[Operation, ...]" = ()


def coverage(stream: "Stream", target: "Target") -> Coverage:
    """Return which ranges of a stream's table were computed by which operation.

    Args:
        stream: A stream that declares `backfill_by`.

    Raises:
        TerminalError: The stream declares no column to select rows by.
        CheckpointError: The record of an operation cannot be read.
    """
    if stream.backfill_by is None:
        raise TerminalError(
            "it declares no column to select rows by, so it has no ranges.",
            stream=stream.name,
            fix="declare backfill_by=, or see tidemill operations.",
            code="backfill-by-missing",
        )
    column = stream.backfill_by.column
    layers: list[Span[Operation | None]] = [Span(None, None, None)]
    other: list[Operation] = []
    kind = ""
    operations = StreamRecords(target.lake, stream.name).operations()
    for operation in operations:  # the type that the column has now
        if operation.kind == "backfill" and operation.decided["column"] == column:
            kind = operation.decided["type"]
    for operation in operations:
        match operation.kind:
            case "backfill" if (operation.decided["column"], operation.decided["type"]) == (column, kind):
                layers.append(Span(operation.decided["begin"], operation.decided["end"], operation))
            case "backfill":
                other.append(operation)
            case "rebuild":
                layers, other = [Span(None, None, operation)], []
            case "reset" if operation.arguments["table"] != "keep":
                layers, other = [Span(None, None, None)], []
            case "rewind":
                version = operation.decided["versions"]["main"]
                layers = [layer for layer in layers if not _is_taken_back(layer.by, version)]
                other = [one for one in other if not _is_taken_back(one, version)]
            case _:
                pass
    return Coverage(stream=stream.name, column=column, ranges=covered(layers), other=tuple(other))


def covered(layers: "Sequence[Span[By]]") -> "tuple[Span[By], ...]":
    """Return ranges that do not overlap, in order: each value belongs to the last layer that has it.

    Args:
        layers: Ranges, the oldest first.
    """
    spans: list[Span[By]] = []
    for layer in layers:
        parts = [part for span in spans for part in (span.before(layer.begin), span.since(layer.end)) if part]
        spans = sorted([*parts, layer], key=lambda span: (span.begin is not None, span.begin or ""))
    return tuple(spans)


def _is_taken_back(operation: "Operation | None", version: int) -> bool:
    """Return whether a rewind to a version of the table takes a backfill back."""
    if operation is None or operation.kind != "backfill":
        return False
    return bool(operation.result["table_version"] >= version)

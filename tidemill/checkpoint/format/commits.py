"""`commits/N`: batch N is complete. Spark writes the file last and repeats a batch without one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.checkpoint.format.errors import CheckpointFormatError
from tidemill.checkpoint.format.logfile import excerpt, long_field, parse_object, versioned_lines

KNOWN_VERSION = 2
WATERMARK = "nextBatchWatermarkMs"
"""The field with the watermark of the next batch."""

StateIds = Mapping[int, tuple[tuple[str, ...], ...]]
"""Operator -> partition -> the state id of each of its stores after the batch."""


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One file of the commit log.

    Attributes:
        batch_id: The batch.
        version: 2 if the state is kept with unique ids (Spark 4.0, checkpointFormatVersion 2), else 1.
        next_watermark_ms: The watermark of the next batch, milliseconds since the epoch, 0 before any event; None if
            the commit has none (before Spark 2.4).
        state_unique_ids: The ids of the state files that the batch left; None where files have no ids.
    """

    batch_id: int
    version: int
    next_watermark_ms: int | None
    state_unique_ids: StateIds | None


def parse_commit(batch_id: int, data: bytes, where: str) -> CommitEntry:
    """Parse one file of the commit log.

    Raises:
        CheckpointFormatError: The file is empty, not JSON, or of an unsupported version.
    """
    version, lines = versioned_lines(where, data, known=KNOWN_VERSION)
    fields = parse_object(where, lines[0]) if lines else {}  # Spark 2.1 wrote the version line alone
    ids = fields.get("stateUniqueIds")
    has_watermark = WATERMARK in fields
    return CommitEntry(
        batch_id=batch_id,
        version=version,
        next_watermark_ms=long_field(where, fields, WATERMARK) if has_watermark else None,
        state_unique_ids=None if ids is None else _state_ids(where, ids),
    )


def _state_ids(where: str, value: Any) -> StateIds:
    try:
        state_ids = {
            int(operator): tuple(tuple(stores) for stores in partitions)
            for operator, partitions in value.items()
        }
        ids = [unique for partitions in state_ids.values() for stores in partitions for unique in stores]
    except (AttributeError, TypeError, ValueError):
        ids = [None]
        state_ids = {}
    if not all(isinstance(unique, str) for unique in ids):
        raise CheckpointFormatError(
            where, f"stateUniqueIds is {excerpt(repr(value))}, not lists of ids.", code="unparseable-file"
        )
    return state_ids

"""`commits/N`: batch N is done. Spark writes it last; a batch without it is run again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.streaming.checkpoint.errors import CheckpointFormatError
from pipelines.streaming.checkpoint.logfile import long_field, parse_object, shown, versioned_lines

KNOWN_VERSION = 2

StateIds = Mapping[int, tuple[tuple[str, ...], ...]]
"""Operator -> partition -> the id of the state each of its stores was left in."""


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One file of the commit log.

    Attributes:
        batch_id: The batch.
        version: 2 when the state is kept with unique ids (Spark 4.0, checkpointFormatVersion 2), else 1.
        next_watermark_ms: The watermark of the batch after, milliseconds since the epoch.
        state_unique_ids: Which files hold the state that the batch left; None where only numbers say so.
    """

    batch_id: int
    version: int
    next_watermark_ms: int
    state_unique_ids: StateIds | None


def parse_commit(batch_id: int, data: bytes, where: str) -> CommitEntry:
    """One file of the commit log.

    Raises:
        CheckpointFormatError: empty, no JSON, or of an unknown version.
    """
    version, lines = versioned_lines(where, data, known=KNOWN_VERSION)
    fields = parse_object(where, lines[0]) if lines else {}  # Spark 2.1 wrote the version line alone
    ids = fields.get("stateUniqueIds")
    return CommitEntry(
        batch_id=batch_id,
        version=version,
        next_watermark_ms=long_field(where, fields, "nextBatchWatermarkMs", 0),
        state_unique_ids=None if ids is None else _state_ids(where, ids),
    )


def _state_ids(where: str, value: Any) -> StateIds:
    try:
        found = {
            int(operator): tuple(tuple(stores) for stores in partitions)
            for operator, partitions in value.items()
        }
        texts = [unique for partitions in found.values() for stores in partitions for unique in stores]
    except (AttributeError, TypeError, ValueError):
        texts = [None]
        found = {}
    if not all(isinstance(unique, str) for unique in texts):
        raise CheckpointFormatError(
            where, f"stateUniqueIds is {shown(repr(value))}, not lists of ids.", code="unparseable-file"
        )
    return found

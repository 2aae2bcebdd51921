"""Readers of a table that was rewound: they skip what was taken back.

After a rewind, the log of a table has the commits that were taken back, the RESTORE, and then the new ones. A reader
that had read none of the former reads up to the version that was restored, and continues after the RESTORE. A reader
that has read more of them must be rewound as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.checkpoint import Tail, commit_batches, offset_batches, read_offset
from tidemill.checkpoint.format.offsets import Offsets
from tidemill.connectors.delta.position import DeltaPosition, at_version
from tidemill.errors import UpstreamChangeError
from tidemill.run.tables.guard import append_readings, restores_in

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.storage.lake import Lake
    from tidemill.storage.store import Store


@dataclass(frozen=True, slots=True)
class Detour:
    """How a source gets past a RESTORE.

    Attributes:
        is_ahead: Whether it has rows to read before.
        end: The offset up to which it reads them, as JSON.
        continuation: The offset at which it continues, as JSON.
    """

    source: str
    is_ahead: bool
    end: str
    continuation: str

    def passed(self, offsets: Offsets) -> Offsets:
        """Return the offsets of a batch with the one at which the source continues."""
        return {**offsets, self.source: self.continuation}


def detours(stream: "Stream", lake: "Lake", checkpoint: "Store", tail: Tail) -> Iterator[Detour]:
    """Yield the next detour of each source that has one.

    Raises:
        UpstreamChangeError: The reader has read rows that were taken back.
    """
    for name, upstream in append_readings(stream).items():
        offset = tail.planned(name)
        at = DeltaPosition.of(offset)
        if at is None or offset is None or offset.raw is None:
            continue
        restores = restores_in(lake.table(upstream).log.commits(at.version))
        if not restores:
            continue
        first = restores[0]
        position = at.version + (at.index >= 0 or at.is_starting)
        if position > first.restored + 1:
            batch = _batch_before(checkpoint, name, first.restored + 1)
            again = f"tidemill rewind {stream.name} --to-batch {batch}"
            raise UpstreamChangeError(
                f"{upstream} was rewound (version {first.version} of its table restored version "
                f"{first.restored}), and this stream has read rows that were taken back.",
                stream=stream.name,
                fix=again if batch is not None else f"tidemill rebuild {stream.name}",
                code="upstream-rewound",
            )
        yield Detour(
            name,
            is_ahead=position < first.restored + 1 or at.index >= 0 or at.is_starting,
            end=at_version(offset.raw, first.restored + 1),
            continuation=at_version(offset.raw, first.version + 1),
        )


def _batch_before(checkpoint: "Store", name: str, version: int) -> int | None:
    """Return the newest committed batch that had not read a version of a source; None where there is none."""
    committed = set(commit_batches(checkpoint))
    for batch in sorted(set(offset_batches(checkpoint)) & committed, reverse=True):
        offset = read_offset(checkpoint, batch).source(name)
        at = DeltaPosition.of(offset)
        if at is not None and at.version + (at.index >= 0) <= version:
            return batch
    return None

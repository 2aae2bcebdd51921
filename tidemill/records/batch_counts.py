"""The counts of a feed's batch, written down before the batch is committed.

They are known once its rows are in the table, too late for the metadata of that commit. A batch that is committed has
its file, or a commit that has the counts, so its line in the ledger is complete even if a later run writes it. The
files of the last hundred batches stay, because the check `exactly_once` compares the ledger with them.
"""

import json
import re
from dataclasses import asdict, dataclass, field

from tidemill.storage.store import Store

_FOLDER = "counts"
_COUNTS = re.compile(rf"{_FOLDER}/([0-9]+)/([0-9]+)\.json", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """What a batch of a feed counted; None where it did not.

    Attributes:
        rows_read: Records.
        rows_blank: Lines that are no records.
        rows_quarantined: Records that went to quarantine.
        rows_out: Rows that left the function, where the stream has expectations.
        rows_dropped: Rows left out by expectations.
        violations: Violations by expectation.
    """

    query_id: str
    rows_read: int | None = None
    rows_blank: int | None = None
    rows_quarantined: int | None = None
    rows_out: int | None = None
    rows_dropped: int | None = None
    violations: dict[str, int] = field(default_factory=dict)


def read_counts(files: Store, generation: int, batch_id: int, query_id: str) -> BatchCounts | None:
    """Return the counts of a batch; None where it has none, or where they are of another query.

    A file that a power failure has damaged is as good as none: its counts are missing in the ledger, and no row is.
    """
    try:
        counts = BatchCounts(**json.loads(files.read(_key(generation, batch_id))))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return counts if counts.query_id == query_id else None


def write_counts(files: Store, generation: int, batch_id: int, counts: BatchCounts) -> None:
    """Write the counts of a batch."""
    files.replace(_key(generation, batch_id), json.dumps(asdict(counts)).encode())


def remove_counts(files: Store, generation: int, *, last: int) -> None:
    """Remove the counts of a generation's batches up to one, and those of generations that have ended."""
    for of, batches in _by_generation(files).items():
        if of <= generation:
            files.delete(_key(of, batch) for batch in batches if of < generation or batch <= last)


def _by_generation(files: Store) -> dict[int, list[int]]:
    batches: dict[int, list[int]] = {}
    for entry in files.walk(_FOLDER):
        if match := _COUNTS.fullmatch(entry.key):
            batches.setdefault(int(match[1]), []).append(int(match[2]))
    return batches


def _key(generation: int, batch_id: int) -> str:
    return f"{_FOLDER}/{generation}/{batch_id}.json"

"""The counts of a feed's batch, written down before the batch is committed.

They are known once its rows are in the table, too late for the metadata of that commit. A batch that is committed has
its file, or a commit that has the counts, so its line in the ledger is complete even if a later run writes it. The
files of the last hundred batches stay, because the check `exactly_once` compares the ledger with them.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tidemill.storage.atomic import replace_file


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """What a batch of a feed counted; None where it did not.

    Attributes:
        query_id: Spark's query id.
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


def counts_path(folder: Path, generation: int, batch_id: int) -> Path:
    """Return the file of a batch's counts.

    Args:
        folder: The folder of the counts.
        generation: The checkpoint's generation.
        batch_id: The batch.
    """
    return folder / str(generation) / f"{batch_id}.json"


def read_counts(path: Path, query_id: str) -> BatchCounts | None:
    """Return the counts of a batch; None where it has none, or where they are of another query.

    A file that a power failure has damaged is as good as none: its counts are missing in the ledger, and no row is.
    """
    try:
        counts = BatchCounts(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return counts if counts.query_id == query_id else None


def write_counts(path: Path, counts: BatchCounts) -> None:
    """Write the counts of a batch."""
    replace_file(path, json.dumps(asdict(counts)))


def remove_counts(folder: Path, generation: int, *, last: int) -> None:
    """Remove the counts of a generation's batches up to one, and those of generations that have ended."""
    for path in folder.glob("*/*.json"):
        if not (path.stem.isdigit() and path.parent.name.isdigit()):
            continue
        if int(path.parent.name) < generation or (
            path.parent.name == str(generation) and int(path.stem) <= last
        ):
            path.unlink(missing_ok=True)

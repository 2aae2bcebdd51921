"""Counts over batches, and times, as results of checks have them."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.records.batch import BatchRecord


def total(lines: "tuple[BatchRecord, ...]", count: str) -> int | None:
    """Return a count over lines of the ledger; None where no line has it."""
    known = [value for line in lines if (value := getattr(line, count)) is not None]
    return sum(known) if known else None


def time_of(milliseconds: int) -> str:
    """Return a time for people, in UTC to the second: `2026-01-31 12:00:00`."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def iso_of(milliseconds: int | None) -> str | None:
    """Return a time for programs, as ISO-8601 in UTC."""
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")

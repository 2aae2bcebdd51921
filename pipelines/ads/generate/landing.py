"""Write events as files of JSON lines into a landing folder."""

import os
from itertools import groupby
from pathlib import Path

from pipelines.ads.generate.amounts import Amounts, Tally
from pipelines.ads.generate.arrivals import LATE_IMPRESSIONS, arrivals, at_least
from pipelines.ads.generate.records import FEEDS
from tidemill.errors import ConfigurationError

_MTIME_STEP_NS = 10_000_000  # Spark orders files by modification time, to the millisecond at best


def generate(
    *, out: str | Path, events: int, seed: int, files: int, start: int = 0, late: int = LATE_IMPRESSIONS
) -> Amounts:
    """Write events to `out/<feed>/<index of its first event>.json`.

    A file is written under a hidden name, which Spark does not read, and renamed when it is complete. Of the
    files of one piece, that of the campaigns is renamed first. The names and the modification times ascend in
    the order of arrival, also across calls.

    Args:
        out: The landing folder; created if it is missing.
        events: The number of indices to write, at least 1.
        seed: The seed of the sequence.
        files: The number of pieces, at least 1. A piece has one file per feed that has records in it.
        start: The first index; the `next_start` of the previous call continues the sequence.
        late: The number of late impressions in this call; ignored with `start` 0.

    Raises:
        ConfigurationError: A number is out of its range, or files from this index on exist already.
        OSError: The folder cannot be written; files with their final names are complete.
    """
    at_least(1, files, "files")
    arriving = arrivals(events=events, seed=seed, start=start, late=late)
    folders = {feed: Path(out) / feed for feed in FEEDS}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    existing = [file for folder in folders.values() for file in folder.glob("[0-9]*.json")]
    later = min((file for file in existing if int(file.stem) >= start), default=None)
    if later is not None:
        raise ConfigurationError(
            f"demo generate: {later} contains events from index {int(later.stem)} on, and --start is {start}.",
            lost="Nothing was written.",
            fix="Continue after these events with a higher --start, or choose an empty folder with --out.",
            code="files-exist",
        )
    modified = max((file.stat().st_mtime_ns for file in existing), default=0)
    tally = Tally()
    for _, piece in groupby(arriving, lambda arrival: (arrival[0] - start) * files // events):
        lines: dict[str, list[str]] = {feed: [] for feed in FEEDS}
        first: int | None = None
        for index, record in piece:
            first = index if first is None else first
            tally.add(record)
            lines[record.feed].append(record.text)
        for feed, of_feed in lines.items():
            if of_feed:
                modified = _write(folders[feed], f"{first:012d}.json", of_feed, after=modified)
    return tally.amounts(seed=seed, start=start, events=events)


def _write(folder: Path, name: str, lines: list[str], *, after: int) -> int:
    """Write a file that is newer than `after` nanoseconds and return its modification time."""
    hidden = folder / f".{name}.tmp"
    hidden.write_text("\n".join(lines) + "\n", encoding="utf-8")
    modified = max(hidden.stat().st_mtime_ns, after + _MTIME_STEP_NS)
    os.utime(hidden, ns=(modified, modified))
    hidden.replace(folder / name)
    return modified

"""Events as files of JSON lines in a landing place."""

import os
from itertools import groupby
from pathlib import Path

from pipelines.ads.generate.amounts import Amounts, Tally
from pipelines.ads.generate.arrivals import LATE_IMPRESSIONS, arrivals, at_least
from pipelines.ads.generate.records import FEEDS
from pipelines.streaming.errors import ConfigurationError

_MTIME_STEP_NS = 10_000_000  # Spark orders files by modification time, to the millisecond at best


def generate(
    *, out: str | Path, events: int, seed: int, files: int, start: int = 0, late: int = LATE_IMPRESSIONS
) -> Amounts:
    """Writes events to `out/<feed>/<index of its first event>.json`.

    A file is written under a hidden name, which Spark does not read, and moved into place when it is
    complete; what belongs together is moved campaigns first. Names sort, and modification times ascend, in
    the order of arrival, also after what earlier calls left.

    Args:
        out: The landing place; made where it is missing.
        events: The number of indices to write, at least 1.
        seed: Another seed is another sequence.
        files: Into how many pieces the events are cut, at least 1; a piece has one file for each feed, or
            none where the feed has no record in it.
        start: The first index; the `next_start` of the call before continues the sequence.
        late: Late impressions to spread over the call; there are none with `start` 0.

    Raises:
        ConfigurationError: a number is out of its range, or files from this index on are there already.
        OSError: the place cannot be written; files that are in place are complete.
    """
    at_least(1, files, "files")
    arriving = arrivals(events=events, seed=seed, start=start, late=late)
    folders = {feed: Path(out) / feed for feed in FEEDS}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    there = [file for folder in folders.values() for file in folder.glob("[0-9]*.json")]
    later = min((file for file in there if int(file.stem) >= start), default=None)
    if later is not None:
        raise ConfigurationError(
            f"demo generate: {later} holds events from index {int(later.stem)} on, and --start is {start}. "
            "Nothing was written. Continue after it with a higher --start, or take an empty --out."
        )
    modified = max((file.stat().st_mtime_ns for file in there), default=0)
    tally = Tally()
    for _, piece in groupby(arriving, lambda arrival: (arrival[0] - start) * files // events):
        lines: dict[str, list[str]] = {feed: [] for feed in FEEDS}
        first: int | None = None
        for index, record in piece:
            first = index if first is None else first
            tally.add(record)
            lines[record.feed].append(record.text)
        for feed, texts in lines.items():
            if texts:
                modified = _write(folders[feed], f"{first:012d}.json", texts, after=modified)
    return tally.amounts(seed=seed, start=start, events=events)


def _write(folder: Path, name: str, lines: list[str], *, after: int) -> int:
    """Writes a file that is newer than `after` nanoseconds; returns its modification time."""
    hidden = folder / f".{name}.tmp"
    hidden.write_text("\n".join(lines) + "\n", encoding="utf-8")
    modified = max(hidden.stat().st_mtime_ns, after + _MTIME_STEP_NS)
    os.utime(hidden, ns=(modified, modified))
    hidden.replace(folder / name)
    return modified

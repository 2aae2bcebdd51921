"""How much a backlog is in rows, files and bytes, and how old.

This costs more than a count: the size of every unread file, the actions of every unread commit, and for Kafka one
unread message per partition. Only a policy with conditions and a status view need it.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tidemill.connectors.backlog import Backlog, UnreadFiles, UnreadMessages, UnreadVersions
from tidemill.definitions.run_when import Amount, moment
from tidemill.errors import TidemillError

# Up to twice as much, a JVM that compiles once is done sooner: docs/performance.md.
_LITTLE_BYTES = 32 << 20
_LITTLE_MESSAGES = 100_000


def amount_of(backlogs: Iterable[Backlog]) -> Amount:
    """Return how much waits in some sources together.

    Data that disappears meanwhile does not count. A broker that does not answer leaves the ages unknown.
    """
    total = _Total()
    for backlog in backlogs:
        match backlog.unread:
            case UnreadFiles():
                _add_files(total, backlog.unread)
            case UnreadMessages():
                total.rows.append(backlog.count)
                _add_message_times(total, backlog.unread)
            case UnreadVersions():
                _add_versions(total, backlog.unread)
    return total.amount()


def is_little(backlogs: Iterable[Backlog]) -> bool:
    """Return whether so little waits in some sources together that starting Spark takes longer than reading it."""
    waiting = [backlog for backlog in backlogs if backlog]
    if any(backlog.unread is None for backlog in waiting):
        return False  # it is unknown how much
    messages = sum(one.count for one in waiting if isinstance(one.unread, UnreadMessages))
    others = amount_of(one for one in waiting if not isinstance(one.unread, UnreadMessages))
    return messages <= _LITTLE_MESSAGES and (others.bytes or 0) <= _LITTLE_BYTES


@dataclass(slots=True)
class _Total:
    rows: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    times: list[datetime] = field(default_factory=list)

    def amount(self) -> Amount:
        return Amount(
            rows=sum(self.rows) if self.rows else None,
            files=sum(self.files) if self.files else None,
            bytes=sum(self.bytes) if self.bytes else None,
            oldest_at=min(self.times, default=None),
            newest_at=max(self.times, default=None),
        )


def _add_files(total: _Total, unread: UnreadFiles) -> None:
    total.files.append(len(unread.paths))
    for path in unread.paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - `Path` costs several times as much, and there may be many
        except OSError:
            continue
        total.bytes.append(status.st_size)
        total.times.append(moment(status.st_mtime_ns // 1_000_000))


def _add_message_times(total: _Total, unread: UnreadMessages) -> None:
    from tidemill.connectors.kafka.client import client_of

    try:
        client = client_of(unread.cluster)
        times = [*client.timestamps(unread.positions).values(), *client.newest_times(unread.positions)]
    except TidemillError:
        return
    total.times += map(moment, times)


def _add_versions(total: _Total, unread: UnreadVersions) -> None:
    for version in unread.versions:
        commit = unread.folder / "_delta_log" / f"{version:020d}.json"
        try:
            rows, size = _added(commit)
            written = commit.stat().st_mtime_ns
        except FileNotFoundError:
            continue
        total.bytes.append(size)
        total.times.append(moment(written // 1_000_000))
        if rows is not None:
            total.rows.append(rows)


def _added(commit: Path) -> tuple[int | None, int]:
    """Return the rows and the bytes of the files that a commit adds; no rows where a file has no statistics."""
    rows: int | None = 0
    size = 0
    with commit.open(encoding="utf-8") as lines:
        for line in lines:
            add = json.loads(line).get("add") if line.strip() else None
            if add is None or not add.get("dataChange"):
                continue
            size += add["size"]
            records = json.loads(add.get("stats") or "{}").get("numRecords")
            rows = None if rows is None or records is None else rows + records
    return rows, size

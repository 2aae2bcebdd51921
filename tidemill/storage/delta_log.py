"""A Delta table's log, read without a JVM: its versions, and the actions of single commits.

State (schema, statistics) comes from delta-rs (`TableRef.open`); the actions of one commit are read from its JSON
file (Delta protocol, "Delta Log Entries"), which delta-rs does not offer.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tidemill.storage.store import Store

_COMMIT_FILE = re.compile(r"([0-9]{20})\.json", re.ASCII)
_CHECKPOINT_FILE = re.compile(r"([0-9]{20})\.checkpoint\..+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table.

    Attributes:
        version: Its version.
        operation: `STREAMING UPDATE`, `WRITE`, `MERGE`, ...
        transactions: Versions by app id (`txn` actions).
        metrics: The commit's `operationMetrics`, which Delta writes as strings.
        user_metadata: The writer's `userMetadata`.
        adds_rows: Whether it adds files with new data.
        removes_rows: Whether it removes files and with them data; a compaction does not.
        timestamp_ms: When it was written, milliseconds since the epoch.
    """

    version: int
    operation: str = ""
    transactions: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    user_metadata: str | None = None
    adds_rows: bool = False
    removes_rows: bool = False
    timestamp_ms: int | None = None

    @property
    def rows_written(self) -> int | None:
        """Rows that the commit added, changed or deleted; None where it does not record them."""
        if self.operation == "MERGE":
            parts = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
            return sum(int(self.metrics.get(part, 0)) for part in parts)
        rows = self.metrics.get("numOutputRows")
        return None if rows is None else int(rows)


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The commits and checkpoints that a log has from one version on.

    Attributes:
        written: When each commit file was written, seconds since the epoch by the store's clock, by version.
        head: The newest version of the log; -1 where there is no table.
    """

    written: Mapping[int, float]
    head: int


@dataclass(frozen=True, slots=True)
class DeltaLog:
    """The log of one table.

    Attributes:
        store: Where it is.
        folder: The key of its folder.
    """

    store: Store
    folder: str

    @property
    def name(self) -> str:
        """The name of its folder in that of the table."""
        return self.folder.rpartition("/")[2]

    def files(self, first: int = 0) -> LogFiles:
        """Return the commits and checkpoints from a version on; the head is the newest one before, if there is none."""
        # With the version before: it is the head where a reader has read everything.
        entries = self.store.list(self.folder, after=_name(first - 2) if first > 1 else "")
        written = {
            int(match[1]): entry.modified
            for entry in entries
            if (match := _COMMIT_FILE.fullmatch(entry.name))
        }
        head = _head(entry.name for entry in entries)
        if head < 0 < first:
            head = _head(self.store.names(self.folder))
        return LogFiles({version: at for version, at in written.items() if version >= first}, head)

    def versions(self) -> list[int]:
        """Return the versions that have a commit file, ascending; none where there is no table."""
        names = self.store.names(self.folder)
        return sorted(int(match[1]) for name in names if (match := _COMMIT_FILE.fullmatch(name)))

    def latest_version(self) -> int | None:
        """Return the newest version; None where there is no table."""
        # A listing has 1,000 names per request on a store, and a log may have tens of thousands.
        first = 0 if self.store.has_folders else self.last_checkpoint()
        head = self.files(first).head if first else _head(self.store.names(self.folder))
        return None if head < 0 else head

    def last_checkpoint(self) -> int:
        """Return the version from which on a reader needs the log; 0 where it is not known."""
        version = self.object("_last_checkpoint").get("version")
        return version if isinstance(version, int) else 0

    def object(self, name: str) -> dict[str, Any]:
        """Return an object of JSON in a file of the log; an empty one where it is missing or damaged."""
        with suppress(FileNotFoundError, NotADirectoryError, ValueError):
            content = json.loads(self.store.read(f"{self.folder}/{name}"))
            if isinstance(content, dict):
                return content
        return {}

    def commits(self, first: int, last: int | None = None) -> Iterator[Commit]:
        """Yield the commits from version `first` to `last` (the newest, if None), oldest first.

        Commits whose file the log's cleanup has removed are left out.
        """
        version = first
        while last is None or version <= last:
            commit = self.commit(version)
            if commit is not None:
                yield commit
            elif last is None:
                return
            version += 1

    def commits_of_batches(self, app_id: str, oldest: int) -> dict[int, Commit]:
        """Return the commits of a query by batch id, from a batch on.

        The log is read from its end, because the batches of a run are near it.

        Args:
            app_id: The app id of the query's transactions.
            oldest: The first batch of interest.
        """
        by_batch: dict[int, Commit] = {}
        newest = self.latest_version()
        for version in range(-1 if newest is None else newest, -1, -1):
            commit = self.commit(version)
            if commit is None:
                break
            batch = commit.transactions.get(app_id)
            if batch is not None:
                if batch >= oldest:
                    by_batch[batch] = commit
                if batch <= oldest:
                    break
        return by_batch

    def commit(self, version: int) -> Commit | None:
        """Return the commit of one version; None where its file is missing."""
        actions = self.iter_actions(version)
        return None if actions is None else commit_of(version, actions)

    def actions(self, version: int) -> list[dict[str, Any]] | None:
        """Return the actions of one version; None where its file is missing."""
        actions = self.iter_actions(version)
        return None if actions is None else list(actions)

    def iter_actions(self, version: int) -> Iterator[dict[str, Any]] | None:
        """Return the actions of one version, each parsed when it is taken: the first few are often enough."""
        content = self._read(version)
        if content is None:
            return None
        return (json.loads(line) for line in content.splitlines() if line.strip())

    def checksum(self, version: int) -> str | None:
        """Return the checksum of the file of one version; None where it is missing."""
        content = self._read(version)
        return None if content is None else hashlib.sha256(content).hexdigest()

    def has(self, version: int) -> bool:
        """Return whether one version has a commit file."""
        return self._read(version) is not None

    def _read(self, version: int) -> bytes | None:
        try:
            return self.store.read(f"{self.folder}/{_name(version)}")
        except (FileNotFoundError, NotADirectoryError):
            return None


def by_kind(actions: Iterable[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return actions with their kinds, such as `add` and `commitInfo`."""
    return [item for action in actions for item in action.items()]


def commit_of(version: int, actions: Iterable[dict[str, Any]]) -> Commit:
    """Return the commit with these actions."""
    info: dict[str, Any] = {}
    transactions: dict[str, int] = {}
    adds = removes = False
    for action in actions:
        info = action.get("commitInfo", info)
        if txn := action.get("txn"):
            transactions[txn["appId"]] = txn["version"]
        adds = adds or bool(action.get("add", {}).get("dataChange"))
        removes = removes or bool(action.get("remove", {}).get("dataChange"))
    return Commit(
        version=version,
        operation=info.get("operation", ""),
        transactions=transactions,
        metrics=info.get("operationMetrics", {}),
        user_metadata=info.get("userMetadata"),
        adds_rows=adds,
        removes_rows=removes,
        timestamp_ms=info.get("timestamp"),
    )


def _name(version: int) -> str:
    return f"{version:020d}.json"


def _head(names: Iterable[str]) -> int:
    matches = (_COMMIT_FILE.fullmatch(name) or _CHECKPOINT_FILE.fullmatch(name) for name in names)
    return max((int(match[1]) for match in matches if match), default=-1)

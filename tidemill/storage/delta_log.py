"""A Delta table's log, read without a JVM: versions, transactions, and the actions of single commits.

State (schema, transactions, version) comes from delta-rs; the actions of one commit are read from its JSON
file (Delta protocol, "Delta Log Entries"), which delta-rs does not offer.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltalake import DeltaTable


_COMMIT_FILE = re.compile(r"([0-9]{20})\.json", re.ASCII)


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


def open_table(folder: Path) -> "DeltaTable | None":
    """Return the table in a folder; None where there is none."""
    if not (folder / "_delta_log").is_dir():
        return None
    from deltalake import DeltaTable  # a tenth of a second, which definitions do not have
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(str(folder))
    except TableNotFoundError:
        return None


def latest_version(folder: Path) -> int | None:
    """Return the newest version of the table in a folder; None where there is none."""
    table = open_table(folder)
    return None if table is None else table.version()


def commits(folder: Path, first: int, last: int | None = None) -> Iterator[Commit]:
    """Yield the commits from version `first` to `last` (the newest, if None), oldest first.

    Commits whose file the log's cleanup has removed are left out.
    """
    version = first
    while last is None or version <= last:
        commit = read_commit(folder, version)
        if commit is not None:
            yield commit
        elif last is None:
            return
        version += 1


def commits_of_batches(folder: Path, app_id: str, oldest: int) -> dict[int, Commit]:
    """Return the commits of a query by batch id, from a batch on.

    The log is read from its end, because the batches of a run are near it.

    Args:
        folder: The table's folder.
        app_id: The app id of the query's transactions.
        oldest: The first batch of interest.
    """
    by_batch: dict[int, Commit] = {}
    newest = latest_version(folder)
    for version in range(-1 if newest is None else newest, -1, -1):
        commit = read_commit(folder, version)
        if commit is None:
            break
        batch = commit.transactions.get(app_id)
        if batch is not None:
            if batch >= oldest:
                by_batch[batch] = commit
            if batch <= oldest:
                break
    return by_batch


def read_commit(folder: Path, version: int) -> Commit | None:
    """Return the commit of one version; None where its file is missing."""
    actions = read_actions(folder, version)
    return None if actions is None else commit_of(version, actions)


def read_actions(folder: Path, version: int) -> list[dict[str, Any]] | None:
    """Return the actions of one version; None where its file is missing."""
    path = folder / "_delta_log" / f"{version:020d}.json"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    return [json.loads(line) for line in lines if line.strip()]


def by_kind(actions: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return actions with their kinds, such as `add` and `commitInfo`."""
    return [item for action in actions for item in action.items()]


def versions_in(folder: Path) -> list[int]:
    """Return the versions of a table that have a file in its log, ascending; none where there is no table."""
    names = (path.name for path in (folder / "_delta_log").glob("*.json"))
    return sorted(int(match[1]) for name in names if (match := _COMMIT_FILE.fullmatch(name)))


def commit_of(version: int, actions: list[dict[str, Any]]) -> Commit:
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

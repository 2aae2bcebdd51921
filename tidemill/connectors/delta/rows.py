"""The rows, bytes and newest times that commits of a Delta table add, by the statistics in its log."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemill.connectors.delta.position import DeltaPosition
from tidemill.storage.delta_log import commit_of
from tidemill.storage.table_ref import TableRef

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rows_added(actions: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the rows in the files that a commit adds as new data; None where a file has no statistics."""
    count = 0
    for add in _added(actions):
        records = json.loads(str(add.get("stats") or "{}")).get("numRecords")
        if records is None:
            return None
        count += int(records)
    return count


def bytes_added(actions: Iterable[Mapping[str, Any]]) -> int:
    """Return the bytes of the files that a commit adds as new data."""
    return sum(int(add["size"]) for add in _added(actions))


def rows_of_versions(table: TableRef, versions: Sequence[int]) -> int | None:
    """Return the rows that commits have added to a stream's table; None where the log no longer has one of them."""
    commits = _read_by_streams(table, versions)
    counts = [rows_added(actions) for actions in commits] if commits is not None else [None]
    return None if None in counts else sum(count or 0 for count in counts)


def newest_in_versions(table: TableRef, versions: Sequence[int], column: str) -> int | None:
    """Return the newest time that commits have added to a column, by the statistics of their files.

    Delta writes the statistics of times in milliseconds, and so does Spark compute its watermark.

    Args:
        table: The table of a stream.
        versions: The versions of the commits.
        column: The column, a timestamp.

    Returns:
        Milliseconds since the epoch; None where a commit or a file has no statistics, and where no row has a time.
    """
    newest = []
    for actions in _read_by_streams(table, versions) or ():
        for add in _added(actions):
            stats = json.loads(str(add.get("stats") or "{}"))
            if column in (stats.get("maxValues") or {}):
                newest.append(_milliseconds(stats["maxValues"][column]))
            elif (stats.get("nullCount") or {}).get(column) != stats.get("numRecords", -1):
                return None
    return max(newest, default=None)


def _milliseconds(time: str) -> int:
    return (datetime.fromisoformat(time) - _EPOCH) // timedelta(milliseconds=1)


def _read_by_streams(table: TableRef, versions: Sequence[int]) -> list[Sequence[Mapping[str, Any]]] | None:
    """Return the actions of the commits that readers of a stream's table do not skip; None where one is missing."""
    commits: list[Sequence[Mapping[str, Any]]] = []
    for version in versions:
        actions = table.log.actions(version)
        if actions is None:
            return None
        if not commit_of(version, actions).removes_rows:
            commits.append(actions)
    return commits


def whole_versions(start: DeltaPosition | None, end: DeltaPosition | None) -> range | None:
    """Return the versions between two positions; None where a part of one is between them, or a snapshot.

    Args:
        start: The first position; None for the beginning of the log.
        end: The last one.
    """
    positions = [position for position in (start, end) if position is not None]
    if end is None or any(at.index != -1 or at.is_starting for at in positions):
        return None
    if len({at.reservoir_id for at in positions}) != 1:
        return None
    return range(0 if start is None else start.version, end.version)


def _added(actions: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    adds = (action.get("add") for action in actions)
    return (add for add in adds if add is not None and add.get("dataChange"))

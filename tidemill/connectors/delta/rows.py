"""The rows and bytes that commits of a Delta table add, by the statistics in its log."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemill.connectors.delta.position import DeltaPosition
from tidemill.storage.delta_log import commit_of
from tidemill.storage.table_ref import TableRef


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
    count = 0
    for version in versions:
        actions = table.log.actions(version)
        if actions is None:
            return None
        if commit_of(version, actions).removes_rows:
            continue  # readers of a stream's table skip it
        rows = rows_added(actions)
        if rows is None:
            return None
        count += rows
    return count


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

"""Counts of rows from the metrics of a merge's commit."""

from collections.abc import Mapping
from typing import Any

from tidemill.storage.delta_log import Commit


def rows_written(commit: Commit, metadata: Mapping[str, Any]) -> int | None:
    """Return how many rows a commit added, changed or removed; None where it does not record them.

    A merge by sequence removes no row without inserting another one for the same key (the tombstone of a live row,
    or the live row of a tombstone): the two count once.

    Args:
        metadata: What Tidemill wrote into it (`CommitMetadata`).
    """
    if metadata.get("rows_written") is not None:
        return int(metadata["rows_written"])
    if metadata.get("merge_order") == "sequence":
        return _count(commit, "numTargetRowsInserted") + _count(commit, "numTargetRowsUpdated")
    return commit.rows_written


def rows_ignored(commit: Commit, metadata: Mapping[str, Any]) -> int | None:
    """Return how many changes a merge ignored because their sequence was not new; None for other commits."""
    if metadata.get("merge_order") != "sequence":
        return None
    used = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    # Delta does not count the source of a merge into an empty table, which ignores nothing.
    return max(0, _count(commit, "numSourceRows") - sum(_count(commit, metric) for metric in used))


def _count(commit: Commit, metric: str) -> int:
    return int(commit.metrics.get(metric, 0))

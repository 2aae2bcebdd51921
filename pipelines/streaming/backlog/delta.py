"""The backlog in a Delta table: the commits of its log from the checkpoint's version on.

Only names are listed and only commits that the stream has not read are opened, up to the first that changes
data. Compactions and a sink's commits of nothing do not count (Delta protocol, "Add File and Remove File":
`dataChange`).
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelines.streaming.backlog.count import Backlog
from pipelines.streaming.checkpoint import DeltaOffset, SourceOffset
from pipelines.streaming.errors import DataLossError, TerminalError

_COMMIT = re.compile(r"(\d{20})\.json")


def waiting_versions(
    folder: Path, offset: SourceOffset | None, *, what: str, options: Mapping[str, str] | None = None
) -> Backlog:
    """Return the versions of a table from the first unread one that changes data.

    Args:
        folder: The table's folder.
        offset: Delta's offset.
        what: A description of the source.
        options: Options of Delta's streaming source.

    Raises:
        TerminalError: The table is missing, is another one, or cannot be read.
        DataLossError: Its log no longer has the next version.
    """
    chosen = {key.lower(): value for key, value in (options or {}).items()}
    at = None if offset is None else offset.delta
    try:
        versions = sorted(
            int(found[1])
            for place in (folder / "_delta_log").iterdir()
            if (found := _COMMIT.fullmatch(place.name))
        )
    except (FileNotFoundError, NotADirectoryError):
        versions = []
    except OSError as error:
        raise TerminalError(
            f"{what}: the log of {folder} cannot be read: {error.strerror}.",
            fix="give this user the right to read it.",
        ) from None
    if at is None:
        start = chosen.get("startingversion", "0")
        return _from(folder, [each for each in versions if each >= (int(start) if start.isdigit() else 0)])
    if not versions:
        raise TerminalError(
            f"{what}: the table in {folder} is missing; the checkpoint continues at its version {at.version}.",
            lost="Rows that were written to it after that version are lost unless it is restored.",
            fix="restore the table. A table that was recreated in its place needs a new checkpoint of this stream.",
        )
    _check_same_table(folder, at, what)
    if at.is_starting:  # it is in the snapshot that it began with: the rest waits
        return Backlog(max(1, versions[-1] - at.version + 1), "versions", f"snapshot {at.version}")
    _check_continues(folder, versions, at, what, tolerant=chosen.get("failondataloss", "").lower() == "false")
    if at.index >= 0:  # in the middle of a version: the rest waits
        return Backlog(max(1, versions[-1] - at.version + 1), "versions", f"within version {at.version}")
    return _from(folder, [version for version in versions if version >= at.version])


def _from(folder: Path, versions: list[int]) -> Backlog:
    for place, version in enumerate(versions):
        if _changes_data(_commit(folder, version)):
            return Backlog(len(versions) - place, "versions", f"version {version}")
    return Backlog(0, "versions")


def _check_same_table(folder: Path, at: DeltaOffset, what: str) -> None:
    # The first commit tells in a moment; where it is gone or has another id, the table's state decides.
    if _first_id(folder) == at.reservoir_id:
        return
    from pipelines.streaming.delta_log import open_table  # delta-rs takes long to load

    table = open_table(folder)
    now = None if table is None else str(table.metadata().id)
    if now != at.reservoir_id:
        raise TerminalError(
            f"{what}: the table in {folder} is another one (id {now}) than the checkpoint has read "
            f"(id {at.reservoir_id}): it was deleted and recreated.",
            lost="Rows that the old table got after the last run are lost unless it is restored.",
            fix="restore the old table, or rebuild this stream from the new one with a new checkpoint.",
        )


def _check_continues(
    folder: Path, versions: list[int], at: DeltaOffset, what: str, *, tolerant: bool
) -> None:
    if at.version > versions[-1] + 1:
        raise DataLossError(
            f"{what}: the table in {folder} ends at version {versions[-1]}, and the checkpoint has read "
            f"version {at.version - 1}: an older copy of the table was restored.",
            lost=f"Versions {versions[-1] + 1} to {at.version - 1} are missing in the table; "
            "this stream has read them.",
            fix="restore the newest copy, or rebuild this stream from the table with a new checkpoint.",
        )
    following = [version for version in versions if version >= at.version]
    if following and following[0] > at.version and not tolerant:
        raise DataLossError(
            f"{what}: the log of {folder} continues with version {following[0]}, and the checkpoint with "
            f"version {at.version}: the log's cleanup was faster than this stream.",
            lost=f"Versions {at.version} to {following[0] - 1} can no longer be read one by one.",
            fix="rebuild this stream with a new checkpoint, and raise the table's property "
            "delta.logRetentionDuration.",
        )


def _commit(folder: Path, version: int) -> Iterator[dict[str, Any]]:
    """Yield the actions of a commit: a commit of many files is long, and its start is often enough."""
    try:
        with (folder / "_delta_log" / f"{version:020d}.json").open(encoding="utf-8") as lines:
            for line in lines:
                if line.strip():
                    yield json.loads(line)
    except FileNotFoundError:
        return


def _changes_data(actions: Iterator[dict[str, Any]]) -> bool:
    return any(
        action.get(kind, {}).get("dataChange", False) for action in actions for kind in ("add", "remove")
    )


def _first_id(folder: Path) -> str | None:
    return next((action["metaData"]["id"] for action in _commit(folder, 0) if "metaData" in action), None)

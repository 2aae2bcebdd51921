"""When a table loses commits or files that a stream has not read.

A table loses commits that are older than `delta.logRetentionDuration`, and VACUUM removes files that a later commit
has replaced, once they are older than `delta.deletedFileRetentionDuration`.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from tidemill.connectors.answers import Expiry, milliseconds
from tidemill.connectors.delta.position import DeltaPosition
from tidemill.errors import DefinitionError
from tidemill.storage.table_ref import TableRef
from tidemill.text.durations import parse_duration

LOG_RETENTION = ("delta.logRetentionDuration", timedelta(days=30))
FILE_RETENTION = ("delta.deletedFileRetentionDuration", timedelta(days=7))
_MAX_COMMITS = 1000


def table_expiry(table: TableRef, position: DeltaPosition, *, changes: bool) -> Expiry | None:
    """Return when the first unread commit of a table, or one of its files, may be removed; None if all is read.

    Args:
        position: The reader's position.
        changes: Whether it reads the change data feed.
    """
    first = table.log.commit(position.version)
    opened = table.open()
    if first is None or first.timestamp_ms is None or opened is None:
        return None
    settings = opened.metadata().configuration
    log, files = (_table_retention(settings, *setting) for setting in (LOG_RETENTION, FILE_RETENTION))
    expiries = [
        Expiry(first.timestamp_ms + milliseconds(log), log, f"version {first.version} ({LOG_RETENTION[0]})")
    ]
    for version, removed_at in _removed_files(table, position, changes=changes):
        what = f"a file of version {version}, by VACUUM ({FILE_RETENTION[0]})"
        expiries.append(Expiry(removed_at + milliseconds(files), files, what))
    return min(expiries, key=lambda expiry: expiry.at_ms)


def _removed_files(table: TableRef, position: DeltaPosition, *, changes: bool) -> Iterator[tuple[int, int]]:
    """Yield the unread files that VACUUM may remove: the version that has the file, and since when it is unused.

    Files of the change data feed belong to no version of the table, so VACUUM removes them by their age.
    """
    added: dict[str, int] = {}
    for version in range(position.version, position.version + _MAX_COMMITS):
        actions = table.log.actions(version)
        if actions is None:
            return
        written = next((a["commitInfo"].get("timestamp") for a in actions if "commitInfo" in a), None)
        for action in actions:
            if "remove" in action:
                remove = action["remove"]
                if remove["path"] in added or position.is_starting:
                    at = remove.get("deletionTimestamp") or written
                    if at is not None:
                        yield added.get(remove["path"], position.version), int(at)
            elif "add" in action and action["add"].get("dataChange"):
                added[action["add"]["path"]] = version
            elif changes and "cdc" in action and written is not None:
                yield version, int(written)


def _table_retention(settings: Mapping[str, str], name: str, default: timedelta) -> timedelta:
    """Return a property of a table, such as `interval 30 days`; the default where only Delta could parse it."""
    value = settings.get(name, "").lower().removeprefix("interval ")
    try:
        return parse_duration(value, field=name) if value else default
    except DefinitionError:
        return default

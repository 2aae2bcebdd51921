"""The version that a new reader of a table begins with, where the options of its source do not name a number.

Delta writes no offset before a reader has found data, and resolves such options again at each start: commits between
two runs would be lost. So the first run decides, and the manifest keeps the version until there is an offset.
"""

import time
from collections.abc import Mapping
from datetime import UTC, datetime

from tidemill.connectors.known_options import option_of
from tidemill.errors import TerminalError
from tidemill.storage.table_ref import TableRef

_COMMIT_TIMES = "delta.enableInCommitTimestamps"


def first_version(table: TableRef, options: Mapping[str, str], recorded: int | None) -> int | None:
    """Return the first version that a new reader reads; None where a number or nothing is declared.

    Args:
        options: Options of Delta's streaming source, as declared.
        recorded: The version that an earlier run has decided; None before the first run.

    Raises:
        TerminalError: The declared time is in the future.
    """
    is_latest = option_of(options, "startingversion") == "latest"
    starting = option_of(options, "startingtimestamp").upper()
    if is_latest and recorded is not None:
        return recorded
    head = table.log.latest_version() if is_latest or starting else None
    if head is None:
        return None
    return head + 1 if is_latest else _version_at(table, starting, head)


def time_of(timestamp: str) -> datetime:
    """Return a time that is written as ISO 8601, in UTC where it has no zone.

    Raises:
        ValueError: It is not.
    """
    parsed = datetime.fromisoformat(timestamp.strip())
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def _version_at(table: TableRef, starting: str, head: int) -> int:
    """Return the first version that was written at a time or later, or the next one."""
    at_ms = int(time_of(starting).timestamp() * 1000)
    opened = table.open()
    in_commits = opened is not None and opened.metadata().configuration.get(_COMMIT_TIMES) == "true"
    previous = -1
    for version, modified in sorted(table.log.files().written.items()):
        written = _time_in_commit(table, version) if in_commits else None
        # Delta lets no commit be older than the one before it.
        previous = max(int(modified * 1000) if written is None else written, previous + 1)
        if previous >= at_ms:
            return version
    if at_ms > time.time() * 1000:
        raise TerminalError(
            f"startingTimestamp is {starting}, which is in the future.",
            fix="declare a time that has passed, or startingVersion=latest.",
            code="start-invalid",
        )
    return head + 1


def _time_in_commit(table: TableRef, version: int) -> int | None:
    actions = table.log.iter_actions(version) or ()
    return next((a["commitInfo"].get("inCommitTimestamp") for a in actions if "commitInfo" in a), None)

"""The cleanup of a Delta log up to a version (Delta protocol, "Metadata Cleanup").

Delta removes old commits by their age alone, when it writes a checkpoint. A reader that is behind, or a rewind, needs
them up to a version, which no library takes as the limit.
"""

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.storage.delta_log import DeltaLog
    from tidemill.storage.table_ref import TableRef

_VERSIONED = re.compile(
    r"\.?([0-9]{20})\.(json|crc|checkpoint\.parquet)(\.crc)?|\.?[0-9]{20}\.([0-9]{20})\.compacted\.json(\.crc)?",
    re.ASCII,
)
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\.parquet", re.ASCII)


def obsolete_log_files(table: "TableRef", needed: int) -> list[str]:
    """Return the keys of the files of a table's log that no version from `needed` on needs, oldest first.

    A version is read from a checkpoint and the commits after it, so the newest checkpoint that is not after `needed` is
    kept with everything after it. A log with checkpoints in parts, or of version 2, is left as it is.

    Args:
        needed: The oldest version that is needed.
    """
    log = table.log
    names = log.store.names(log.folder)
    if any(".checkpoint." in name and not _VERSIONED.fullmatch(name) for name in names):
        return []
    newest = _newest_checkpoint(log)
    if newest is None:
        return []
    checkpoints = [int(match[1]) for name in names if (match := _CHECKPOINT.fullmatch(name))]
    first = max((version for version in checkpoints if version <= min(needed, newest)), default=None)
    if first is None or not _is_readable(table, first):
        return []
    versions = ((match, name) for name in names if (match := _VERSIONED.fullmatch(name)))
    old = [(int(match[1] or match[4]), name) for match, name in versions]
    return [f"{log.folder}/{name}" for version, name in sorted(old) if version < first]


def _newest_checkpoint(log: "DeltaLog") -> int | None:
    """Return the version that readers of the log begin with."""
    try:
        return int(json.loads(log.store.read(f"{log.folder}/_last_checkpoint"))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_readable(table: "TableRef", version: int) -> bool:
    """Return whether a version can be read: its checkpoint is about to be its only record."""
    from deltalake.exceptions import DeltaError

    try:
        opened = table.open(version)
        return opened is not None and opened.get_add_actions() is not None
    except (DeltaError, OSError):
        return False

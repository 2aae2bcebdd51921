"""The cleanup of a Delta log up to a version (Delta protocol, "Metadata Cleanup").

Delta removes old commits by their age alone, when it writes a checkpoint. A reader that is behind, or a rewind, needs
them up to a version, which no library takes as the limit.
"""

import json
import re
from pathlib import Path

_VERSIONED = re.compile(
    r"\.?([0-9]{20})\.(json|crc|checkpoint\.parquet)(\.crc)?|\.?[0-9]{20}\.([0-9]{20})\.compacted\.json(\.crc)?",
    re.ASCII,
)
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\.parquet", re.ASCII)


def obsolete_log_files(folder: Path, needed: int) -> list[Path]:
    """Return the files of a table's log that no version from `needed` on needs, oldest first.

    A version is read from a checkpoint and the commits after it, so the newest checkpoint that is not after `needed` is
    kept with everything after it. A log with checkpoints in parts, or of version 2, is left as it is.

    Args:
        folder: The table's folder.
        needed: The oldest version that is needed.
    """
    log = folder / "_delta_log"
    names = [path.name for path in log.iterdir() if path.is_file()]
    if any(".checkpoint." in name and not _VERSIONED.fullmatch(name) for name in names):
        return []
    newest = _newest_checkpoint(log)
    if newest is None:
        return []
    checkpoints = [int(match[1]) for name in names if (match := _CHECKPOINT.fullmatch(name))]
    first = max((version for version in checkpoints if version <= min(needed, newest)), default=None)
    if first is None or not _is_readable(folder, first):
        return []
    versions = ((match, name) for name in names if (match := _VERSIONED.fullmatch(name)))
    old = [(int(match[1] or match[4]), name) for match, name in versions]
    return [log / name for version, name in sorted(old) if version < first]


def remove_log_files(paths: "list[Path]") -> None:
    """Remove files of a log, oldest first: what a kill leaves has no hole."""
    for path in paths:
        path.unlink(missing_ok=True)


def _newest_checkpoint(log: Path) -> int | None:
    """Return the version that readers of the log begin with."""
    try:
        return int(json.loads((log / "_last_checkpoint").read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_readable(folder: Path, version: int) -> bool:
    """Return whether a version can be read: its checkpoint is about to be its only record."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        DeltaTable(str(folder), version=version).get_add_actions()
    except (DeltaError, OSError):
        return False
    return True

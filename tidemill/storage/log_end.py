"""The end of a Delta table's log: its newest version, and what Delta's checksum file of that version knows.

delta-rs replays the log from its last checkpoint on, which is dozens of requests to an object store. The checksum file
of the newest version has the table's id and the transactions of all writers (Delta protocol, "Version Checksum File").
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tidemill.storage.delta_log import DeltaLog


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The newest version of a table.

    Attributes:
        version: The version.
        table_id: The table's id.
        transactions: The newest version of each writer's transactions, by its app id.
    """

    version: int
    table_id: str
    transactions: Mapping[str, int]


def log_end(log: DeltaLog) -> LogEnd | None:
    """Return the end of a log; None where there is no table, or no checksum file that belongs to its newest version."""
    return _at(log, log.files(_last_checkpoint(log)).head)


def _at(log: DeltaLog, version: int) -> LogEnd | None:
    checksum = _read(log, f"{version:020d}.crc") if version >= 0 else {}
    # One that is older than the commit may be there after a restore: Delta does not replace it.
    if not checksum.get("txnId") or checksum["txnId"] != _transaction_id(log, version):
        return None
    try:
        transactions = {txn["appId"]: int(txn["version"]) for txn in checksum["setTransactions"]}
        return LogEnd(version, str(checksum["metadata"]["id"]), transactions)
    except (KeyError, TypeError, ValueError):
        return None


def table_id_at(log: DeltaLog, version: int) -> str | None:
    """Return the table's id at a version of its log; None where its checksum file does not have it."""
    end = _at(log, version)
    return None if end is None else end.table_id


def _last_checkpoint(log: DeltaLog) -> int:
    """Return the version from which on a reader needs the log; 0 where it is not known."""
    version = _read(log, "_last_checkpoint").get("version")
    return version if isinstance(version, int) else 0


def _transaction_id(log: DeltaLog, version: int) -> str | None:
    actions = log.iter_actions(version) or ()
    return next((action["commitInfo"].get("txnId") for action in actions if "commitInfo" in action), None)


def _read(log: DeltaLog, name: str) -> dict[str, Any]:
    """Return an object of JSON in a file of the log; an empty one where it is missing or damaged."""
    with suppress(FileNotFoundError, NotADirectoryError, ValueError):
        content = json.loads(log.store.read(f"{log.folder}/{name}"))
        if isinstance(content, dict):
            return content
    return {}

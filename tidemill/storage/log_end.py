"""The end of a Delta table's log: its newest version, and what Delta's checksum file of that version knows.

delta-rs replays the log from its last checkpoint on, which is dozens of requests to an object store. The checksum file
of the newest version has the table's id and the transactions of all writers (Delta protocol, "Version Checksum File").
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.storage.delta_log import DeltaLog


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The newest version of a table.

    Attributes:
        version: The version.
        table_id: The table's id.
        properties: The table's properties.
        transactions: The newest version of each writer's transactions, by its app id.
        features: The table features that readers and writers must know; None where the file does not have them.
    """

    version: int
    table_id: str
    properties: Mapping[str, str]
    transactions: Mapping[str, int]
    features: frozenset[str] | None = None


def features_of(protocol: Mapping[str, Any]) -> frozenset[str]:
    """Return the table features of a `protocol` action."""
    return frozenset([*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())])


def log_end(log: DeltaLog, version: int | None = None) -> LogEnd | None:
    """Return the end of a log; None where there is no table, or no checksum file that belongs to its newest version.

    Args:
        log: The log.
        version: Its newest version, where that is known.
    """
    if version is None:
        version = log.files(log.last_checkpoint()).head
    if version < 0:
        return None
    try:
        checksum = log.object(f"{version:020d}.crc")
        # After a restore there may be one of another commit of the same number: Delta does not replace it.
        if checksum["txnId"] is None or checksum["txnId"] != _transaction_id(log, version):
            return None
        return LogEnd(
            version=version,
            table_id=str(checksum["metadata"]["id"]),
            properties=dict(checksum["metadata"]["configuration"]),
            transactions={txn["appId"]: int(txn["version"]) for txn in checksum["setTransactions"]},
            features=None if (protocol := checksum.get("protocol")) is None else features_of(protocol),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _transaction_id(log: DeltaLog, version: int) -> str | None:
    actions = log.iter_actions(version) or ()
    return next((action["commitInfo"].get("txnId") for action in actions if "commitInfo" in action), None)

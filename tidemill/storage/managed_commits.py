"""Tables whose commits a catalog manages: their log in the folder may end before their newest version.

Their writers hand commits to the catalog, which decides the order, and the folder gets them later (Delta protocol,
"Catalog-managed tables"). Whoever reads the folder alone, as Tidemill does to decide without Spark, misses rows and may
take an unratified commit for a version. delta-rs refuses such a table, and Spark refuses one by its path.
"""

from tidemill.errors import TerminalError
from tidemill.storage.delta_log import DeltaLog
from tidemill.storage.log_end import features_of, log_end

FEATURES = ("catalogManaged", "catalogOwned", "catalogOwned-preview")
"""The table features that make it so, by their names in releases of Delta."""


def managed_commits(table: object, feature: str, reader: str = "") -> TerminalError:
    """Return the error about a table that Tidemill does not read.

    Args:
        table: The table.
        feature: Its table feature.
        reader: What reads it, as the beginning of a sentence; empty where that is not known.
    """
    return TerminalError(
        f"{reader or 'it'} reads {table}, whose commits a catalog manages (the table feature {feature!r}): the log in "
        "its folder lacks its newest versions, and Tidemill reads that log to decide, to guard and to check.",
        fix="let its owner drop the feature (ALTER TABLE ... DROP FEATURE), or read a copy of it that has its commits "
        "in its own log.",
        code="catalog-managed-commits",
    )


def managing_feature(log: DeltaLog) -> str | None:
    """Return the feature by which a catalog manages the commits of a table; None where none does.

    A log without a checksum file whose cleanup has removed the commit with the features shows none.
    """
    features = _features(log)
    return next((feature for feature in FEATURES if feature in features), None)


def _features(log: DeltaLog) -> frozenset[str]:
    """Return the features of a table, by the checksum file of its newest version or else by its commits."""
    if (end := log_end(log)) is not None and end.features is not None:
        return end.features
    newest = log.latest_version()
    for version in range(-1 if newest is None else newest, -1, -1):
        actions = log.iter_actions(version)
        if actions is None:
            break
        for action in actions:
            if (protocol := action.get("protocol")) is not None:
                return features_of(protocol)
    return frozenset()

"""Tables whose commits a catalog manages: their log in the folder may end before their newest version.

Their writers hand commits to the catalog, which decides the order, and the folder gets them later (Delta protocol,
"Catalog-managed tables"). Whoever reads the folder alone, as Tidemill does to decide without Spark, misses rows and may
take an unratified commit for a version.
"""

from typing import TYPE_CHECKING

from tidemill.errors import TerminalError
from tidemill.storage.log_end import features_of, log_end

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.storage.table_ref import TableRef

FEATURES = ("catalogManaged", "catalogOwned", "catalogOwned-preview")
"""The table features that make it so, by their names in releases of Delta."""


def refuse_managed_commits(stream: "Stream", name: str, table: "TableRef") -> None:
    """Refuse a source whose table has catalog-managed commits.

    Args:
        stream: The stream that reads it.
        name: The name of the source.
        table: The table.

    Raises:
        TerminalError: It has.
    """
    feature = managing_feature(table)
    if feature is None:
        return
    raise TerminalError(
        f"its source {name!r} reads {table}, whose commits a catalog manages (the table feature {feature!r}): the log "
        "in its folder lacks its newest versions, and Tidemill reads that log to decide, to guard and to check.",
        stream=stream.name,
        fix="let its owner drop the feature (ALTER TABLE ... DROP FEATURE), or read a copy of it that has its commits "
        "in its own log.",
        code="catalog-managed-commits",
    )


def managing_feature(table: "TableRef") -> str | None:
    """Return the feature by which a catalog manages the commits of a table; None where none does."""
    features = _features(table)
    return next((feature for feature in FEATURES if feature in features), None)


def _features(table: "TableRef") -> frozenset[str]:
    """Return the features of a table, by the checksum file of its newest version or else by its log."""
    if (end := log_end(table.log)) is not None and end.features is not None:
        return end.features
    newest = table.log.latest_version()
    for version in range(-1 if newest is None else newest, -1, -1):
        actions = table.log.iter_actions(version)
        if actions is None:  # the log's cleanup has removed it: a checkpoint has what it had
            break
        for action in actions:
            if (protocol := action.get("protocol")) is not None:
                return features_of(protocol)
    opened = table.open()
    if opened is None:
        return frozenset()
    protocol = opened.protocol()
    return frozenset([*(protocol.reader_features or ()), *(protocol.writer_features or ())])

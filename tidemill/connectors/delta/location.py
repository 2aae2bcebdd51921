"""Where the table of a source is: a stream's own, one by its path, or one of a catalog at its recorded location."""

from typing import TYPE_CHECKING

from tidemill.connectors.delta.source import DeltaSource
from tidemill.definitions.source import StreamTable
from tidemill.errors import TerminalError
from tidemill.storage.table_ref import TableRef

if TYPE_CHECKING:
    from tidemill.storage.lake import Lake


def located_table(source: DeltaSource | StreamTable, lake: "Lake") -> TableRef | None:
    """Return the table that a source reads; None of a name in a catalog whose location is not recorded yet.

    Raises:
        ConfigurationError: It is on a store that the target does not say how to reach.
    """
    if isinstance(source, StreamTable):
        return lake.table(source.stream)
    return None if source.folder is None else lake.table_at(source.folder)


def table_of(source: DeltaSource | StreamTable, lake: "Lake") -> TableRef:
    """Return the table that a source reads.

    Raises:
        TerminalError: It is named in a catalog, and no run has asked for its location.
        ConfigurationError: It is on a store that the target does not say how to reach.
    """
    table = located_table(source, lake)
    if table is None:
        raise TerminalError(
            f"{source.describe()}: its location is not known, because no run has asked the catalog for it.",
            fix="run the stream first: its first run asks the catalog.",
            code="catalog-location-unknown",
        )
    return table

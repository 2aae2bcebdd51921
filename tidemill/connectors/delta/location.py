"""Where the table of a source is: a stream's own, one by its path, or one of a catalog at its recorded location."""

from typing import TYPE_CHECKING

from tidemill.connectors.delta.source import DeltaSource
from tidemill.definitions.source import StreamTable
from tidemill.errors import ConfigurationError, TerminalError
from tidemill.storage.local_store import scheme_of
from tidemill.storage.locations import spelled
from tidemill.storage.table_ref import TableRef

if TYPE_CHECKING:
    from tidemill.storage.lake import Lake


def located_table(source: DeltaSource | StreamTable, lake: "Lake") -> TableRef | None:
    """Return the table that a source reads; None of a name in a catalog whose location is not recorded yet.

    Raises:
        ConfigurationError: A catalog has it on another store than the lake.
    """
    if isinstance(source, StreamTable):
        return lake.table(source.stream)
    return None if source.folder is None else table_at(source.folder, lake)


def table_of(source: DeltaSource | StreamTable, lake: "Lake") -> TableRef:
    """Return the table that a source reads.

    Raises:
        TerminalError: It is named in a catalog, and no run has asked for its location.
        ConfigurationError: A catalog has it on another store than the lake.
    """
    table = located_table(source, lake)
    if table is None:
        raise TerminalError(
            f"{source.describe()}: its location is not known, because no run has asked the catalog for it.",
            fix="run the stream first: its first run asks the catalog.",
            code="catalog-location-unknown",
        )
    return table


def table_at(location: str, lake: "Lake") -> TableRef:
    """Return the table at a location: a folder of a file system, or one in the lake's own store.

    Raises:
        ConfigurationError: It is on another store.
    """
    if scheme_of(location) is None:
        return TableRef.at(spelled(location))
    address, within = spelled(location), f"{spelled(lake.uri)}/"
    if not address.startswith(within):
        raise ConfigurationError(
            f"the table at {location} is on a store, and not in the lake {lake.uri}.",
            lost="No data was lost.",
            fix="read a table of a local or mounted file system, or of the lake.",
            code="store-not-supported",
        )
    return TableRef(lake.store, address.removeprefix(within))

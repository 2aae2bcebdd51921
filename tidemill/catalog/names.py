"""The names that the tables of a stream have in catalogs: those of their sinks, or in the catalog of the target."""

from dataclasses import replace
from typing import TYPE_CHECKING

from tidemill.text.catalog_name import CatalogName
from tidemill.text.names import MAIN_SINK, QUARANTINE

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.target.target import Target


def names_of(stream: "Stream", target: "Target") -> dict[str, CatalogName]:
    """Return the names of a stream's tables by sink; empty where no catalog has them.

    The quarantine is among them, whether the stream has one or not: its name follows that of the main table. A table
    that has only the commits of a stream is nobody's to read, and has no name.
    """
    names = {}
    for sink in stream.tables:
        if not sink.has_rows:
            continue
        if sink.table is not None:
            names[sink.name] = CatalogName.parse(sink.table, field="table")
        elif target.catalog is not None:
            names[sink.name] = target.catalog.name_of(stream.name, sink.name)
    if (main := names.get(MAIN_SINK)) is not None:
        names[QUARANTINE] = replace(main, table=f"{main.table}__{QUARANTINE}")
    elif target.catalog is not None:
        names[QUARANTINE] = target.catalog.name_of(stream.name, QUARANTINE)
    return names


def is_in_catalog(stream: "Stream", target: "Target | None") -> bool:
    """Return whether a catalog has tables of a stream."""
    return target is not None and bool(names_of(stream, target))

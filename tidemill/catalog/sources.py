"""Sources that name a table of a catalog: the first run asks for the location, and the manifest keeps it.

Offsets belong to a table, and a name can lead to another one tomorrow. So the location that was recorded is the one
that is read, and a run that finds another one refuses the source. Nothing but a run asks the catalog: decisions, status
and checks read the recorded location, without Spark.
"""

from collections.abc import Mapping
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Any

from tidemill.catalog.entry import entry_of, reason_of
from tidemill.connectors.registry import connector_of
from tidemill.connectors.source_record import SourceRecord
from tidemill.errors import TerminalError, TransientError
from tidemill.storage.locations import is_same_location, spelled
from tidemill.storage.managed_commits import managed_commits, managing_feature
from tidemill.text.catalog_name import CatalogName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.checkpoint import Tail
    from tidemill.definitions.source import Source
    from tidemill.definitions.stream import Stream
    from tidemill.storage.lake import Lake
    from tidemill.storage.table_ref import TableRef


def located(stream: "Stream", records: Mapping[str, SourceRecord]) -> "Stream":
    """Return a stream whose sources of catalogs have their recorded locations; one that has no such source is itself.

    Args:
        stream: The stream.
        records: What the manifest records about its sources, by name.
    """
    locations = {
        name: location
        for name, source in stream.sources.items()
        if source.catalog_table is not None
        and (location := recorded_location(source, records.get(name))) is not None
    }
    return _at(stream, locations)


def _at(stream: "Stream", locations: Mapping[str, str]) -> "Stream":
    if not locations:
        return stream
    sources = {
        name: source.at(locations[name]) if name in locations else source
        for name, source in stream.sources.items()
    }
    return replace(stream, sources=sources)


def recorded_location(source: "Source", record: SourceRecord | None) -> str | None:
    """Return the location that was recorded for the name of a source; None where it has another name now, or none."""
    binding = None if record is None else record.binding
    if binding is None or source.catalog_table is None or "table" not in binding:
        return None
    same_name = str(binding["table"]).lower() == str(source.catalog_table).lower()
    return str(binding["location"]) if same_name else None


def resolved_tables(
    stream: "Stream", spark: "SparkSession", lake: "Lake", tail: "Tail", records: Mapping[str, SourceRecord]
) -> "tuple[Stream, dict[str, SourceRecord]]":
    """Return a stream with the locations that catalogs have for its sources, and the records of its sources with them.

    Raises:
        TransientError: A catalog does not answer.
        TerminalError: A catalog has no such table, or another location than the recorded one, or the table is no Delta
            table, or a catalog manages its commits.
    """
    now, locations = dict(records), {}
    for name, source in stream.sources.items():
        record = now.get(name, SourceRecord())
        if (table := source.catalog_table) is None:
            if (
                not source.streaming or tail.planned(name) is None
            ):  # later the table is the one that was checked
                _check_path(stream, name, lake)
            continue
        location = location_of(stream, name, table, spark)
        if record.binding is not None and "location" in record.binding:
            _check_unchanged(stream, name, record.binding, table, location)
            location = str(record.binding["location"])
        refuse_managed_commits(stream, name, lake.table_at(location))
        now[name] = replace(record, binding=binding_to(table, location), kind=source.kind)
        locations[name] = location
    return _at(stream, locations), now


def _check_path(stream: "Stream", name: str, lake: "Lake") -> None:
    """Refuse a table that is read by its path and whose commits a catalog manages."""
    source = stream.sources[name]
    table = connector_of(source).table(source, lake) if source.upstream is None else None
    if table is not None:
        refuse_managed_commits(stream, name, table)


def refuse_managed_commits(stream: "Stream", name: str, table: "TableRef") -> None:
    """Refuse a source whose table has catalog-managed commits.

    Raises:
        TerminalError: It has.
    """
    if (feature := managing_feature(table.log)) is not None:
        raise managed_commits(table, feature, f"its source {name!r}").of(stream.name)


def binding_to(table: CatalogName, location: str) -> dict[str, Any]:
    """Return what the manifest records of a table of a catalog as the binding of a source."""
    return {"kind": "delta", "table": str(table), "location": location}


def location_of(stream: "Stream", name: str, table: CatalogName, spark: "SparkSession") -> str:
    """Return the location that a catalog has for the table of a source.

    Args:
        stream: The stream that reads it.
        name: The name of the source.
        table: Its name in the catalog.
        spark: The session that the catalog is asked by.

    Raises:
        TransientError: The catalog does not answer.
        TerminalError: There is no such table, or it is no Delta table.
    """
    try:
        entry = entry_of(spark, table)
    except Exception as error:
        raise TransientError(
            f"its source {name!r} reads {table}, and the catalog did not answer for it: {reason_of(error)}.",
            stream=stream.name,
            fix="Run it again; if it stays so, configure the catalog in [targets.<name>.spark.conf], and check the "
            "permissions of this user.",
            code="catalog-not-readable",
        ) from error
    if entry is None:
        raise TerminalError(
            f"its source {name!r} reads {table}, and the catalog has no such table.",
            stream=stream.name,
            fix="register the table there again, at its former location; or correct the name in the definition.",
            code="catalog-table-missing",
        )
    if entry.location is None or entry.provider not in ("delta", ""):
        raise TerminalError(
            f"its source {name!r} reads {table}, which is {entry} in the catalog, and not a Delta table.",
            stream=stream.name,
            fix="name the Delta table itself.",
            code="catalog-table-unsuitable",
        )
    return spelled(entry.location)


def _check_unchanged(
    stream: "Stream", name: str, recorded: Mapping[str, Any], table: CatalogName, location: str
) -> None:
    """Refuse a table that is elsewhere now.

    A name that was changed together with that of the table leads to the same location, and is no change.
    """
    if is_same_location(location, str(recorded["location"])):
        return
    raise TerminalError(
        f"its source {name!r} reads {table}, which the catalog has at {location} now, and its checkpoint continues the "
        f"table at {recorded['location']}: its offsets mean nothing in another table.",
        stream=stream.name,
        fix="register the table at its former location; or, if it is the same table in another folder: "
        f"tidemill rebind {quote(str(stream.name))} {quote(name)}; or, if it is another table, compute the stream "
        f"again from it: tidemill rebuild {quote(str(stream.name))}",
        code="catalog-location-changed",
    )

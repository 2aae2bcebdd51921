"""The columns of sources that infer them: decided once, by the first run, and recorded in the manifest."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemill.connectors.registry import connector_of
from tidemill.connectors.source_record import SourceRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.definitions.stream import Stream


def with_schemas(
    stream: "Stream", spark: "SparkSession", records: Mapping[str, SourceRecord]
) -> dict[str, SourceRecord]:
    """Return the records of a stream's sources, with the columns of each source that infers them and has none.

    Raises:
        TerminalError: A source has no data to infer them from.
    """
    inferred = dict(records)
    for name, source in stream.sources.items():
        record = inferred.get(name, SourceRecord())
        if record.schema is None and (schema := connector_of(source).inferred_schema(source, spark)):
            inferred[name] = replace(record, schema=schema)
    return inferred


def schemas_of(records: Mapping[str, SourceRecord]) -> dict[str, str]:
    """Return the recorded columns of the sources that have inferred them, by name."""
    return {name: record.schema for name, record in records.items() if record.schema is not None}

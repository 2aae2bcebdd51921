"""Dagster metadata of a run and of a table, under stable names: the UI plots each number as a series.

Names that begin with `tidemill/` are Tidemill's. Names that begin with `dagster/` are Dagster's own, and the UI
displays them specially. docs/dagster.md lists them all.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster import (
    AssetKey,
    JsonMetadataValue,
    MarkdownMetadataValue,
    MetadataValue,
    PathMetadataValue,
    TableColumn,
    TableColumnConstraints,
    TableColumnDep,
    TableColumnLineage,
    TableSchema,
    TimestampMetadataValue,
)
from deltalake.schema import ArrayType, MapType, StructType

from tidemill.catalog.names import names_of
from tidemill.connectors.answers import TABLE_NAME
from tidemill.storage.table_ref import TableRef
from tidemill.text.names import MAIN_SINK

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from tidemill.definitions.stream import Stream
    from tidemill.plans.lineage import Lineage
    from tidemill.records.batch import BatchRecord
    from tidemill.run.execute.results import StreamResult
    from tidemill.storage.lake import Lake
    from tidemill.target.target import Target

    Value = (
        int
        | float
        | str
        | TableSchema
        | TableColumnLineage
        | JsonMetadataValue
        | MarkdownMetadataValue
        | PathMetadataValue
        | TimestampMetadataValue
    )
    Metadata = dict[str, Value]

LAST_BATCHES = 10
_HEADINGS = (
    "batch",
    "started at",
    "read",
    "written",
    "quarantined",
    "late",
    "seconds",
    "state rows",
    "version",
)

logger = logging.getLogger(__name__)


def result_metadata(
    result: "StreamResult",
    now: datetime,
    lake: "Lake",
    inputs: Mapping[str, Sequence[AssetKey]] | None = None,
) -> "Metadata":
    """Return what a run did to a stream.

    Args:
        now: The current time, which the watermark's lag is measured against.
        lake: The lake of the run.
        inputs: The assets that the stream reads, by source, which the lineage of columns refers to.
    """
    late = result.late
    metadata: Metadata = {
        "tidemill/rows_read": result.total("rows_read"),
        "tidemill/rows_written": result.total("rows_written"),
        "tidemill/rows_quarantined": result.total("rows_quarantined"),
        "tidemill/rows_dropped": result.total("rows_dropped"),
        "tidemill/late": late.count,
        "tidemill/late_unit": late.unit,
        "tidemill/batches": len(result.batches),
        "tidemill/seconds": result.seconds,
        **{f"tidemill/seconds/{phase}": round(s, 3) for phase, s in result.seconds_by_phase.items()},
        **{
            f"tidemill/observed/{name}/{metric}": number
            for name, metrics in result.observed.items()
            for metric, number in metrics.items()
        },
        **_position(result, now),
        **_lineage(result.lineage, inputs or {}),
        **_catalog(result),
    }
    if result.batches:
        metadata["tidemill/start_offsets"] = _offsets(result.batches[0].start_offsets)
        metadata["tidemill/end_offsets"] = _offsets(result.batches[-1].end_offsets)
        metadata["tidemill/last_batches"] = MetadataValue.md(batches_table(result.batches))
    if result.table is not None:
        written = lake.table_at(result.table)
        table = _opened(written)
        metadata |= {**_location(written), **_columns(table), **_size(table)}
    return metadata


def _catalog(result: "StreamResult") -> "Metadata":
    """Return the names of the stream's tables in a catalog, and what it said about them; nothing without one."""
    if not result.catalog:
        return {}
    tables = {sink: asdict(one) for sink, one in result.catalog.items()}
    names = {TABLE_NAME: result.catalog[MAIN_SINK].name} if MAIN_SINK in result.catalog else {}
    return {**names, "tidemill/catalog": MetadataValue.json(tables)}


def idle_metadata(result: "StreamResult", now: datetime) -> "Metadata":
    """Return the position of an idle stream, without counts: plots show only runs that did something."""
    return {"tidemill/reason": result.reason, **_position(result, now)}


def definition_metadata(stream: "Stream", target: "Target") -> "Metadata":
    """Return what is known of a stream's table without a run: its name, its path, and its columns once it exists.

    Its name is the one in the catalog, where the target or the sink has one.
    """
    table, name = target.lake.table(stream.name), stream.name
    return {
        TABLE_NAME: str(names_of(stream, target).get(MAIN_SINK, f"{name.pipeline}.{name.stream}")),
        **_location(table),
        **_columns(_opened(table)),
    }


def _opened(table: TableRef) -> "DeltaTable | None":
    """Return a table, read without a JVM; None if it does not exist.

    A table that cannot be read counts as missing, with a warning in the log: it must neither keep the code
    location from loading nor fail a run that has done its work.
    """
    try:
        return table.open()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with the table
        logger.warning("The columns and the size of %s are unknown: %s", table, error)
        return None


def _location(table: TableRef) -> "Metadata":
    address = table.uri if "://" in table.uri else Path(table.uri).as_uri()
    return {"dagster/uri": address, "tidemill/table": MetadataValue.path(table.uri)}


def _columns(table: "DeltaTable | None") -> "Metadata":
    if table is None:
        return {}
    columns = [
        TableColumn(
            name=column.name,
            type=type_string(column.type),
            description=(column.metadata or {}).get("comment"),
            constraints=TableColumnConstraints(nullable=column.nullable),
        )
        for column in table.schema().fields
    ]
    return {"dagster/column_schema": TableSchema(columns=columns)}


def _lineage(lineage: "Lineage", inputs: Mapping[str, Sequence[AssetKey]]) -> "Metadata":
    """Return the columns that each column is computed from, where all of them are columns of known assets."""
    columns = {
        name: [
            TableColumnDep(asset_key=key, column_name=column)
            for source, column in origins
            for key in inputs[source]
        ]
        for name, origins in lineage.items()
        if all(inputs.get(source) for source, _ in origins)
    }
    return {"dagster/column_lineage": TableColumnLineage(deps_by_column=columns)} if columns else {}


def _size(table: "DeltaTable | None") -> "Metadata":
    """Return rows and bytes by the statistics in the log (2 ms for 10,000 files); tombstones of a merge count.

    Statistics include the rows that deletion vectors hide, so a table that has some gets no row count.
    """
    if table is None:
        return {}
    files = table.get_add_actions()
    rows = files.column("num_records").to_pylist()
    metadata: Metadata = {"dagster/size_bytes": sum(files.column("size_bytes").to_pylist())}
    if None not in rows and "deletionVectors" not in (table.protocol().reader_features or ()):
        metadata["dagster/row_count"] = sum(rows)
    return metadata


def type_string(kind: Any) -> str:
    """Return a Delta type as Spark's SQL writes it: `struct<file:string,offset:long>`."""
    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{field.name}:{type_string(field.type)}' for field in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{type_string(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{type_string(kind.key_type)},{type_string(kind.value_type)}>"
    return str(getattr(kind, "type", kind))


def batches_table(batches: "Sequence[BatchRecord]") -> str:
    """Return the last batches as a markdown table, newest first; unknown values are empty cells."""
    rows = [
        (
            batch.batch_id,
            batch.started_at,
            batch.rows_read,
            batch.rows_written,
            batch.rows_quarantined,
            batch.late.count if batch.late else None,
            None
            if "triggerExecution" not in batch.milliseconds
            else batch.milliseconds["triggerExecution"] / 1000,
            batch.state_rows,
            batch.delta_version,
        )
        for batch in reversed(batches[-LAST_BATCHES:])
    ]
    return "\n".join((_line(_HEADINGS), _line("---" for _ in _HEADINGS), *map(_line, rows)))


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join('' if cell is None else str(cell) for cell in cells)} |"


def _position(result: "StreamResult", now: datetime) -> "Metadata":
    """Return the position of a stream after a run; what the stream does not have is left out."""
    metadata: Metadata = {}
    if result.watermark_ms is not None:
        watermark = datetime.fromtimestamp(result.watermark_ms / 1000, UTC)
        metadata["tidemill/watermark"] = MetadataValue.timestamp(watermark)
        metadata["tidemill/watermark_lag_seconds"] = round((now - watermark).total_seconds(), 3)
    numbers = {
        "tidemill/state_rows": result.state_rows,
        "tidemill/state_bytes": result.state_bytes,
        "tidemill/delta_version": result.table_version,
        "tidemill/generation": result.generation,
    }
    return metadata | {name: number for name, number in numbers.items() if number is not None}


def _offsets(by_source: Mapping[str, object]) -> JsonMetadataValue:
    """Return offsets by source; through JSON, because Dagster accepts only plain dicts and lists."""
    return MetadataValue.json(json.loads(json.dumps(by_source, default=str)))

"""The comments of a table and of its columns, which every catalog and engine shows: they are part of Delta's log.

What a definition says becomes a comment: the description of the stream, and the comments of columns, which a schema in
DDL has (`"ad_id STRING COMMENT 'The ad.'"`) and a function keeps or adds (`alias("ad_id", metadata={"comment": ...})`).
A comment that somebody else has written stays where the definition has none.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemill.definitions.columns import BATCH, DELETED, END_AT, ORIGIN, START_AT
from tidemill.text.catalog_name import sql_string
from tidemill.text.names import MAIN_SINK, QUARANTINE, sql_identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from tidemill.definitions.stream import Stream
    from tidemill.storage.table_ref import TableRef

_COMMENT = "comment"
OWN_COLUMNS: Mapping[str, str] = {
    ORIGIN: "Where the record was read: a file, or a Kafka topic, partition, offset, timestamp and key.",
    BATCH: "The generation of the checkpoint and the batch that wrote the row.",
    DELETED: "Whether the row is a tombstone: the key was deleted.",
    START_AT: "From when on the version is valid.",
    END_AT: "Until when the version is valid; NULL while it is.",
}
"""The comments of the columns that Tidemill adds to tables."""
QUARANTINE_COLUMNS: Mapping[str, str] = {
    "raw": "The text of the record, or the row as JSON.",
    "violated": "The names of the rules that it violates.",
    "origin": "Where the record was read: a file, or a Kafka topic, partition, offset, timestamp and key.",
    "generation": "The generation of the checkpoint that read it.",
    "batch_id": "The batch that read it.",
    "quarantined_at": "When it was written here.",
    "kind": "input: a record of the feed. output: a row that violates an expectation.",
}
"""The comments of the columns of a quarantine."""


@dataclass(frozen=True, slots=True)
class Comments:
    """The comments of a table.

    Attributes:
        table: The comment of the table; empty where it has none.
        columns: The comments of columns, by column.
    """

    table: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)


def of_columns(schema: "StructType") -> dict[str, str]:
    """Return the comments of the columns that have one."""
    return {column.name: column.metadata[_COMMENT] for column in schema if column.metadata.get(_COMMENT)}


def comments_of(stream: "Stream", sink: str, columns: Mapping[str, str]) -> Comments:
    """Return the comments of a table of a stream.

    Args:
        sink: The name of the sink, or `quarantine`.
        columns: The comments that the output of the stream has.
    """
    if sink == QUARANTINE:
        return Comments(f"Records and rows that the rules of {stream.name} refused.", QUARANTINE_COLUMNS)
    table = stream.description if sink == MAIN_SINK else f"{sink} of {stream.name}. {stream.description}"
    return Comments(table.strip(), {**OWN_COLUMNS, **columns})


def write_comments(spark: "SparkSession", table: "TableRef", comments: Comments) -> bool:
    """Write the comments that a table does not have; return whether there is a table.

    Each statement is a commit that changes metadata only. Delta refuses a batch that is being written meanwhile, so no
    query of the stream may run.
    """
    opened = table.open()
    if opened is None:
        return False
    statements = []
    if comments.table and opened.metadata().description != comments.table:
        statements.append(f"COMMENT ON TABLE {table.sql} IS {sql_string(comments.table)}")
    present = {
        column["name"]: column["metadata"].get(_COMMENT)
        for column in json.loads(opened.schema().to_json())["fields"]
    }
    changed = [
        f"{sql_identifier(name)} COMMENT {sql_string(comment)}"
        for name, comment in comments.columns.items()
        if name in present and present[name] != comment
    ]
    if changed:  # of all columns at once: each statement is a commit
        statements.append(f"ALTER TABLE {table.sql} ALTER COLUMN {', '.join(changed)}")
    for statement in statements:
        spark.sql(statement)
    return True

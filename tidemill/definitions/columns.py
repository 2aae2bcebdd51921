"""The columns that Tidemill adds to tables and to records in flight."""

from collections.abc import Iterable

from tidemill.errors import TerminalError

ORIGIN = "_origin"
"""Where a record of a feed came from: a file, or a Kafka topic, partition, offset, timestamp and key."""

BATCH = "_batch"
"""The generation and the batch that wrote a row of a feed's table."""

DELETED = "_deleted"
"""Whether a row of a merge table is a tombstone."""

START_AT, END_AT = "__START_AT", "__END_AT"
"""From when to when a version in an SCD 2 table is valid; the end of the current version is NULL."""

BOOKKEEPING = (ORIGIN, BATCH)
"""Columns that readers of a stream's table do not get."""

RAW = "_raw"
"""The text of a feed's record, until the record is accepted or quarantined."""

VIOLATED = "_violated"
"""The names of the rules that a feed's record violates, until the record is accepted or quarantined."""

REFUSED_BY = "_tidemill_refused_by"
"""The names of the rules that send a row of the output to quarantine, until the row is written."""

ORIGIN_TYPE = "struct<file:string,topic:string,partition:int,offset:bigint,timestamp:timestamp,key:string>"
"""The type of `_origin`: one for files and topics, so that a table outlives a change of the binding."""

CHANGE_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
"""Columns that Delta adds to each change in a change data feed; a table that has one cannot have them itself."""

_OURS = {
    ORIGIN: "feeds add it to each record",
    BATCH: "tables of feeds have it for each row",
    DELETED: "merge tables mark deleted keys with it",
    START_AT: "a version in an SCD 2 table begins with it",
    END_AT: "a version in an SCD 2 table ends with it",
    RAW: "a record of a feed has its text in it",
    VIOLATED: "a record of a feed has the rules that it violates in it",
    **dict.fromkeys(CHANGE_COLUMNS, "the change data feed of the table adds it to each change"),
}
TABLE_COLUMNS = (ORIGIN, BATCH, DELETED, START_AT, END_AT)
"""Columns of tables, which no output may have but for the `_origin` that a function passes through."""


def refuse_reserved(columns: Iterable[str], reserved: Iterable[str], *, where: str) -> None:
    """Refuse columns of the user that have a reserved name, in any case of letters.

    Args:
        columns: The user's columns.
        reserved: The names that must not be among them.
        where: What has the columns: `the function's output`.

    Raises:
        TerminalError: A column has a reserved name.
    """
    by_name = {column.lower(): column for column in columns}
    for name in reserved:
        if (column := by_name.get(name.lower())) is not None:
            raise TerminalError(
                f"{where} has the column {column!r}, which is reserved: {_OURS[name]}.",
                fix=f"give the column another name, for example "
                f"withColumnRenamed({column!r}, {column.strip('_').lower()!r}).",
                code="column-reserved",
            )

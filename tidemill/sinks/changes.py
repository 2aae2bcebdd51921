"""The changes of one micro-batch as the rows of a MERGE, so that the change data feed shows what readers see.

A merge table keeps a tombstone for each deleted key, which readers leave out. An update of a live row into a
tombstone would be an update in the change data feed, and its postimage would have the payload of the delete. So the
live row is deleted and the tombstone is inserted, by two rows of the source in one commit; a change that revives a
key does the reverse. A reader of the feed that leaves out tombstones, as readers of the table do, then gets the
removed row itself as `delete` and the new one as `insert`.

Each row of the source has an action, and its own copy of the columns that MERGE matches by: NULL where the row must
not match, because only one row of the source may match a row of the table.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemill.definitions.columns import DELETED, END_AT, START_AT
from tidemill.text.names import sql_identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ACTION = "__tidemill_action"
_MATCH = "__tidemill_match_"
_KNOWN = "__tidemill_known_"
_RANK = "__tidemill_rank"

BY_ACTION = (
    f"WHEN MATCHED AND s.{ACTION} = 'delete' THEN DELETE "
    f"WHEN MATCHED AND s.{ACTION} = 'update' THEN {{update}} "
    f"WHEN NOT MATCHED AND s.{ACTION} = 'insert' THEN {{insert}}"
)
"""The clauses of a MERGE whose source has actions; a row with another action, `ignore`, is only counted."""


def refused(rows: "DataFrame", condition: "Column", message: str) -> "DataFrame":
    """Return the rows; a row that meets the condition stops the batch with the message."""
    from pyspark.sql import functions as F

    failure = F.raise_error(F.lit(message)).cast("boolean")
    return rows.where(F.when(condition, failure).otherwise(F.lit(True)))


def newest(rows: "DataFrame", group: Sequence[str], sequence: str) -> "DataFrame":
    """Return one change per group, the one with the highest sequence.

    Two changes with the same sequence have no order: a delete wins, then the row whose JSON string is the greatest,
    so that a repeat of the batch decides the same way.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = Window.partitionBy(*map(sql_identifier, group)).orderBy(
        F.col(sql_identifier(sequence)).desc(), F.col(DELETED).desc(), F.to_json(F.struct("*")).desc()
    )
    return rows.withColumn(_RANK, F.row_number().over(order)).where(f"{_RANK} = 1").drop(_RANK)


def single(rows: "DataFrame", keys: Sequence[str], message: str) -> "DataFrame":
    """Return the rows; a key with two rows stops the batch with the message."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    counted = rows.withColumn(_RANK, F.count("*").over(Window.partitionBy(*map(sql_identifier, keys))))
    return refused(counted, F.col(_RANK) > 1, message).drop(_RANK)


def bare_tombstones(changes: "DataFrame", kept: Sequence[str]) -> "DataFrame":
    """Return the changes; of those that delete, only the kept columns have values."""
    from pyspark.sql import functions as F

    return changes.select(
        *(
            F.col(sql_identifier(column))
            if column in kept
            else F.when(~F.col(DELETED), F.col(sql_identifier(column))).alias(column)
            for column in changes.columns
        )
    )


def row_actions(
    changes: "DataFrame", current: "DataFrame", keys: Sequence[str], sequence: str
) -> "DataFrame":
    """Return the source of a MERGE that keeps the current row or the tombstone of each key.

    Args:
        changes: One change per key.
        keys: The columns that identify a row.
        sequence: The column that orders the changes of a key.
    """
    from pyspark.sql import functions as F

    known = current.select(
        *(F.col(sql_identifier(key)).alias(f"{_KNOWN}{number}") for number, key in enumerate(keys)),
        F.col(sql_identifier(sequence)).alias(f"{_KNOWN}sequence"),
        F.col(DELETED).alias(f"{_KNOWN}deleted"),
    )
    same_key = F.lit(True)
    for number, key in enumerate(keys):
        same_key &= F.col(sql_identifier(key)) == F.col(f"{_KNOWN}{number}")
    unknown = F.col(f"{_KNOWN}deleted").isNull()
    actions = (
        F.when(unknown, F.array(F.lit("insert")))
        .when(F.col(sql_identifier(sequence)) <= F.col(f"{_KNOWN}sequence"), F.array(F.lit("ignore")))
        .when(F.col(DELETED) == F.col(f"{_KNOWN}deleted"), F.array(F.lit("update")))
        .otherwise(F.array(F.lit("delete"), F.lit("insert")))
    )
    # A row that is inserted under an unknown key keeps its key: it matches nothing anyway, and a great many rows
    # with NULL would be joined by one task.
    may_match = F.col(ACTION).isin("update", "delete") | unknown
    joined = changes.join(known, same_key, "left").withColumn(ACTION, F.explode(actions))
    return matching(joined, keys, may_match).select(
        *map(sql_identifier, changes.columns), ACTION, *_match_columns(keys)
    )


def version_actions(
    changes: "DataFrame", history: "DataFrame", keys: Sequence[str], sequence: str, validity: str
) -> "DataFrame":
    """Return the source of a MERGE that keeps every version of each key.

    A version starts at its own validity and ends where the next version of the key, a delete included, starts. A
    change whose key and sequence the table has already is the same change, sent again.

    Args:
        changes: One change per key and sequence.
        keys: The columns that identify a row.
        sequence: The column that orders the changes of a key.
        validity: The column that says from when a version is valid.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    new, end, again = F.col(f"{_KNOWN}new"), F.col(f"{_KNOWN}end"), F.col(f"{_KNOWN}again")
    touched = history.join(
        changes.select(*map(sql_identifier, keys)).distinct(), on=list(keys), how="left_semi"
    )
    versions = (
        touched.withColumn(f"{_KNOWN}end", F.col(END_AT))
        .drop(START_AT, END_AT)
        .withColumn(f"{_KNOWN}new", F.lit(False))
        .unionByName(changes.withColumn(f"{_KNOWN}new", F.lit(True)), allowMissingColumns=True)
    )
    same_version = Window.partitionBy(*map(sql_identifier, [*keys, sequence]))
    following = Window.partitionBy(*map(sql_identifier, keys), f"{_KNOWN}again").orderBy(
        sql_identifier(sequence)
    )
    start = F.col(sql_identifier(validity))
    actions = (
        F.when(again, F.lit("ignore"))
        .when(new, F.lit("insert"))
        .when(~F.col(END_AT).eqNullSafe(end), F.lit("update"))
    )
    judged = (
        versions.withColumn(f"{_KNOWN}again", new & ~F.min(new).over(same_version))
        .withColumn(START_AT, start)
        .withColumn(END_AT, F.lead(start).over(following))
        .withColumn(ACTION, actions)
        .where(F.col(ACTION).isNotNull())
    )
    return matching(judged, [*keys, sequence], F.col(ACTION) != "ignore").drop(
        f"{_KNOWN}end", f"{_KNOWN}new", f"{_KNOWN}again"
    )


def merge_statement(table: str, columns: Sequence[str], same: str, clauses: str) -> str:
    """Return a MERGE from the view `tidemill_changes`.

    Args:
        columns: The columns to write.
        same: The condition under which a row of the source (`s`) matches one of the table (`t`).
        clauses: Its clauses, with `{update}` and `{insert}` for the assignments of all columns.
    """
    names = [sql_identifier(column) for column in columns]
    update = "UPDATE SET " + ", ".join(f"t.{name} = s.{name}" for name in names)
    values = ", ".join(f"s.{name}" for name in names)
    insert = f"INSERT ({', '.join(names)}) VALUES ({values})"  # noqa: S608 - columns are quoted
    return (
        f"MERGE INTO delta.{sql_identifier(table)} t USING tidemill_changes s ON {same} "
        f"{clauses.replace('{update}', update).replace('{insert}', insert)}"
    )


def same_columns(columns: Sequence[str]) -> str:
    """Return the condition that the table and a source agree on these columns."""
    return " AND ".join(f"t.{sql_identifier(column)} = s.{sql_identifier(column)}" for column in columns)


def same_match_columns(columns: Sequence[str]) -> str:
    """Return the condition that the table agrees on these columns with a source that has actions."""
    pairs = zip(columns, _match_columns(columns), strict=True)
    return " AND ".join(f"t.{sql_identifier(column)} = s.{match}" for column, match in pairs)


def matching(rows: "DataFrame", columns: Sequence[str], condition: "Column") -> "DataFrame":
    """Return the rows of a source with the copies of the columns that MERGE matches by.

    Args:
        columns: The columns that identify a row of the table.
        condition: Which rows may match; the others have NULL.
    """
    from pyspark.sql import functions as F

    matches = {
        match: F.when(condition, F.col(sql_identifier(column)))
        for column, match in zip(columns, _match_columns(columns), strict=True)
    }
    return rows.withColumns(matches)


def _match_columns(columns: Sequence[str]) -> list[str]:
    return [f"{_MATCH}{number}" for number in range(len(columns))]

"""The rows of a batch into a table, within a transaction: appended, or merged by key."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tidemill.sinks.postgres.tables import PostgresTable, identifiers

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composable, Composed

Line = Sequence[str | None]


def append(
    connection: "Connection[Any]", table: PostgresTable, columns: Sequence[str], lines: Iterable[Line]
) -> None:
    """Append rows.

    Args:
        columns: Their columns.
        lines: Their values as text, as `copy_text` makes it.
    """
    _copy(connection, table.sql, columns, lines)


def upsert(
    connection: "Connection[Any]",
    table: PostgresTable,
    columns: Sequence[str],
    lines: Iterable[Line],
    *,
    sequence_by: str | None,
    by_bytes: bool,
) -> None:
    """Insert rows, or replace those with the same keys; each key is there once.

    Args:
        columns: Their columns.
        lines: Their values as text, as `copy_text` makes it.
        sequence_by: The column that orders rows: one that is lower than that of the row in the table is ignored.
        by_bytes: Whether that column is a string, which is ordered by its bytes, as in Spark.
    """
    from psycopg.sql import SQL, Identifier

    staging = Identifier("pg_temp", "tidemill_staging")
    names = identifiers(columns)
    connection.execute(
        SQL(
            "CREATE TEMPORARY TABLE tidemill_staging ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA"
        ).format(names, table.sql)
    )
    _copy(connection, staging, columns, lines)
    replaced = [
        SQL("{0} = EXCLUDED.{0}").format(Identifier(name)) for name in columns if name not in table.keys
    ]
    connection.execute(
        SQL("INSERT INTO {} AS t ({}) SELECT {} FROM {} ON CONFLICT ({}) {}").format(
            table.sql,
            names,
            names,
            staging,
            identifiers(table.keys),
            SQL("DO UPDATE SET {}{}").format(SQL(", ").join(replaced), _newer(sequence_by, by_bytes=by_bytes))
            if replaced
            else SQL("DO NOTHING"),
        )
    )


def _newer(sequence_by: str | None, *, by_bytes: bool) -> "Composable":
    from psycopg.sql import SQL, Identifier

    if sequence_by is None:
        return SQL("")
    order = SQL(' COLLATE "C"' if by_bytes else "")
    return SQL(" WHERE t.{0} IS NULL OR t.{0} <= EXCLUDED.{0}{1}").format(Identifier(sequence_by), order)


def _copy(
    connection: "Connection[Any]", table: "Composable", columns: Sequence[str], lines: Iterable[Line]
) -> None:
    from psycopg.sql import SQL

    statement: Composed = SQL("COPY {} ({}) FROM STDIN").format(table, identifiers(columns))
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for line in lines:
            copy.write_row(line)

"""The tables of a sink in Postgres: the one with the rows, and the one with the newest batch of each writer."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemill.definitions.sink import BatchIdentity
from tidemill.errors import TerminalError
from tidemill.sinks.postgres.types import created_type, takes

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed, Identifier
    from pyspark.sql.types import StructType

BATCHES = "tidemill_batches"
_CREATING = 7_411_202_305
"""The advisory lock of whoever creates tables: two `CREATE TABLE IF NOT EXISTS` at the same time collide."""

_COLUMNS = """
SELECT a.attname, CASE t.typtype WHEN 'e' THEN 'enum' ELSE format_type(a.atttypid, a.atttypmod) END,
    a.attnotnull AND NOT a.atthasdef AND a.attidentity = '',
    a.attgenerated <> '' OR a.attidentity = 'a'
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_UNIQUE = """
SELECT array_agg(a.attname::text)
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a
    ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate
    AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""
_RELATION = """
SELECT c.oid, c.relkind::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table in Postgres.

    Attributes:
        kind: Its type, as `format_type` returns it; `enum` for any enum.
        required: Whether a row must give it a value.
        generated: Whether a row must not give it a value.
    """

    kind: str
    required: bool
    generated: bool


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """A table that a sink writes.

    Attributes:
        schema: Its schema.
        name: Its name.
        keys: The columns that identify a row; empty where rows are appended.
    """

    schema: str
    name: str
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def sql(self) -> "Identifier":
        """The table in a statement."""
        from psycopg.sql import Identifier

        return Identifier(self.schema, self.name)

    @property
    def batches(self) -> "Identifier":
        """The table of batches, which is in the same schema and so in the same transaction."""
        from psycopg.sql import Identifier

        return Identifier(self.schema, BATCHES)

    def check(self, connection: "Connection[Any]", output: "StructType", *, sink: str) -> None:
        """Check that an existing table fits an output with these columns.

        Raises:
            TerminalError: It does not.
        """
        relation = connection.execute(_RELATION, (self.schema, self.name)).fetchone()
        if relation is None:
            return
        oid, kind = relation
        if kind not in ("r", "p"):
            raise self._unsuitable(f"{self} is no table", sink, fix="name a table in JdbcSink.")
        columns = {name: _Column(*of) for name, *of in connection.execute(_COLUMNS, (oid,))}
        self._check_columns(columns, output, sink)
        unique = [set(names) for (names,) in connection.execute(_UNIQUE, (oid,))]
        if self.keys and set(self.keys) not in unique:
            raise self._unsuitable(
                f"the table {self} has no unique index on the keys {', '.join(self.keys)}",
                sink,
                fix=f"CREATE UNIQUE INDEX ON {self} ({', '.join(self.keys)})",
            )

    def _check_columns(self, columns: dict[str, _Column], output: "StructType", sink: str) -> None:
        for field in output.fields:
            column = columns.get(field.name)
            if column is None:
                raise self._unsuitable(
                    f"the table {self} has no column {field.name!r} (it has {', '.join(columns)})",
                    sink,
                    fix=f"ALTER TABLE {self} ADD COLUMN ...; or leave the column out in the function.",
                )
            if column.generated or not takes(column.kind, field.dataType):
                reason = "generates it itself" if column.generated else f"has {column.kind}"
                raise self._unsuitable(
                    f"the column {field.name!r} is {field.dataType.simpleString()} in the output, and the table "
                    f"{self} {reason}",
                    sink,
                    fix="cast the column in the function, or leave it out.",
                )
        written = set(output.fieldNames())
        required = [name for name, column in columns.items() if column.required and name not in written]
        if required:
            raise self._unsuitable(
                f"the table {self} needs a value for the column {required[0]!r}, which the output lacks",
                sink,
                fix="let the function return the column, or give it a default in the table.",
            )

    def create(self, connection: "Connection[Any]", output: "StructType") -> None:
        """Create the table and the table of batches where they are missing."""
        from psycopg.sql import SQL, Identifier

        missing = [name for name in (self.name, BATCHES) if not self._exists(connection, name)]
        if not missing:  # a role that may not create tables needs none
            return
        if not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (self.schema,)).rowcount:
            raise TerminalError(
                f"the database has no schema {self.schema!r} for the table {self}.",
                fix=f"CREATE SCHEMA {self.schema}",
                code="sink-table-unsuitable",
            )
        connection.execute(SQL("SELECT pg_advisory_xact_lock({})").format(_CREATING))
        columns = [
            SQL("{} {}").format(Identifier(field.name), SQL(str(created_type(field.dataType))))
            for field in output.fields
        ]
        if self.keys:
            columns.append(SQL("PRIMARY KEY ({})").format(identifiers(self.keys)))
        connection.execute(
            SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(self.sql, SQL(", ").join(columns))
        )
        connection.execute(
            SQL(
                "CREATE TABLE IF NOT EXISTS {} (query_id text, sink text, table_name text, batch_id bigint NOT NULL, "
                "stream text NOT NULL, written_at timestamptz NOT NULL, PRIMARY KEY (query_id, sink, table_name))"
            ).format(self.batches)
        )

    def last_batch(self, connection: "Connection[Any]", query_id: str, sink: str) -> int | None:
        """Return the newest batch of a query that the table has; None where it has none."""
        from psycopg.sql import SQL

        if not self._exists(connection, BATCHES):
            return None
        query = SQL("SELECT batch_id FROM {} WHERE query_id = %s AND sink = %s AND table_name = %s")
        row = connection.execute(query.format(self.batches), (query_id, sink, self.name)).fetchone()
        return None if row is None else int(row[0])

    def begin(self, connection: "Connection[Any]", batch: BatchIdentity, sink: str) -> bool:
        """Record a batch in the transaction that writes its rows; return whether the table lacks it.

        Another transaction with the same query and sink waits here until this one has ended.
        """
        from psycopg.sql import SQL

        recorded = connection.execute(
            SQL(
                "INSERT INTO {0} AS b (query_id, sink, table_name, batch_id, stream, written_at) "
                "VALUES (%s, %s, %s, %s, %s, now()) ON CONFLICT (query_id, sink, table_name) "
                "DO UPDATE SET batch_id = EXCLUDED.batch_id, written_at = EXCLUDED.written_at "
                "WHERE b.batch_id < EXCLUDED.batch_id"
            ).format(self.batches),
            (batch.query_id, sink, self.name, batch.batch_id, batch.stream),
        )
        return recorded.rowcount == 1

    def _exists(self, connection: "Connection[Any]", name: str) -> bool:
        return connection.execute(_RELATION, (self.schema, name)).fetchone() is not None

    @staticmethod
    def _unsuitable(what: str, sink: str, *, fix: str) -> TerminalError:
        return TerminalError(f"{what} (sink {sink!r}).", fix=fix, code="sink-table-unsuitable")


def identifiers(names: Iterable[str]) -> "Composed":
    """Return quoted names with commas between them."""
    from psycopg.sql import SQL, Identifier

    return SQL(", ").join(map(Identifier, names))

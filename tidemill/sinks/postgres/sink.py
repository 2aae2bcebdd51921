"""Write each micro-batch into a table of a Postgres database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemill.definitions.columns import BATCH, DELETED, ORIGIN
from tidemill.definitions.sink import Delivery, SinkBatch, SinkContext
from tidemill.errors import DefinitionError
from tidemill.sinks import changes as merging
from tidemill.sinks.delta_merge import DUPLICATE_KEY_MARK, NULL_KEY_MARK
from tidemill.sinks.external_sink import ExternalSink, columns_unsuitable
from tidemill.sinks.postgres.database import transaction
from tidemill.sinks.postgres.tables import PostgresTable
from tidemill.sinks.postgres.types import copy_text, created_type
from tidemill.sinks.postgres.write import append, upsert
from tidemill.sinks.table_sink import column_names
from tidemill.target.postgres import LONGEST_NAME, schema_and_name
from tidemill.text.names import sql_identifier

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tidemill.definitions.options import OutputMode
    from tidemill.target.postgres import PostgresDatabase
    from tidemill.target.target import Target


@dataclass(frozen=True)
class JdbcSink(ExternalSink):
    """Each batch is written into a table of a Postgres database, exactly once: appended, or merged by key.

    ```python
    from tidemill import DeltaAppend, Feed, JdbcSink, Json, Pipeline

    shop = Pipeline("shop")


    @shop.stream(
        source=Feed("orders", format=Json("id STRING, amount BIGINT, changed_at TIMESTAMP")),
        sink=[DeltaAppend(), JdbcSink("sales.orders", keys=["id"], sequence_by="changed_at")],
    )
    def orders(events):
        return events
    ```

    The target names the database, `[targets.<name>.postgres.<database>]`, and how it is reached. The rows are copied
    with Postgres's own protocol by the package psycopg (`pip install 'tidemill[postgres]'`): Spark needs no jar.

    One transaction has the rows of a batch and its number, in the table `tidemill_batches` of the same schema. A batch
    that is repeated after an error or a kill is not written again, and readers see a batch as a whole or not at all.

    Without `keys` the rows are appended, in output mode `append`. With `keys` a row replaces the one with the same
    keys. In output mode `append`, `sequence_by` names the column that orders the rows of one key, whatever order they
    arrive in: of one batch the highest is taken, and a row that is lower than that in the table is ignored. In output
    mode `update` it may be left out: each batch then replaces what earlier batches wrote for its keys, and a batch with
    two rows of one key is refused. A row with NULL in a key is refused. Rows are never deleted.

    A table that does not exist is created with the columns of the output and with `keys` as its primary key. A table
    that exists must have these columns, with types that take every value, and a unique index on `keys`; it is never
    altered. Structs, arrays and maps are `jsonb`. The columns `_origin` and `_batch` of a feed are left out. Names
    are taken as they are written, with their case.

    A rewind and a reset begin a new query: rows that they read again are appended again, and replace themselves where
    there are `keys`. A backfill and a rebuild replace rows of tables in the lake and do not write here.

    The password is read where the batch is written: with Spark Connect elsewhere, its server needs psycopg and the
    environment variables that the database names.

    Attributes:
        table: The table as `schema.name`.
        keys: Columns that identify a row; none: rows are appended.
        sequence_by: The column that orders the rows of one key.
        database: A Postgres database's name in the target.
        name: The name of the sink.
    """

    table: str
    keys: Sequence[str] = field(default=(), kw_only=True)
    sequence_by: str | None = field(default=None, kw_only=True)
    database: str = field(default="default", kw_only=True)
    name: str = field(default="jdbc", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        schema_and_name(self.table, field="JdbcSink: table")
        object.__setattr__(self, "keys", column_names(self.keys, field="JdbcSink: keys"))
        if self.sequence_by is not None and (not isinstance(self.sequence_by, str) or not self.sequence_by):
            raise DefinitionError(
                f"JdbcSink: sequence_by is {self.sequence_by!r}; name the column that orders rows."
            )
        if self.sequence_by is not None and not self.keys:
            raise DefinitionError(
                "JdbcSink: sequence_by needs keys=, the columns that identify a row.",
                code="arguments-conflict",
            )

    @property
    def identity(self) -> Mapping[str, object]:
        """Its database, by its name in the target, and its table."""
        return {"database": self.database, "table": self.table}

    @property
    def delivery(self) -> Delivery:
        """The transaction of the rows has the number of the batch."""
        return "exactly once"

    def refuses(self, output_mode: "OutputMode") -> str | None:
        """Refuse rows that have no key or no order, and the whole result."""
        if output_mode == "complete":
            return "a JdbcSink, which would keep rows that have left the result: use DeltaOverwrite()."
        if output_mode == "update" and not self.keys:
            return "a JdbcSink without keys, which would append them: use JdbcSink(keys=...)."
        if output_mode == "append" and self.keys and self.sequence_by is None:
            return (
                "a JdbcSink with keys and without sequence_by: rows of one key can arrive in any order, so name the "
                "column that orders them. Only output_mode='update' is ordered by batch."
            )
        return None

    def connection(self, target: "Target") -> "PostgresDatabase":
        """Return the database; its password is the name of a variable, which is read where a batch is written."""
        return target.database(self.database)

    def check(self, context: SinkContext, output: "StructType") -> None:
        """Check that Postgres can have the columns, and that the table, if it exists, fits them.

        Raises:
            TerminalError: A column is missing or has an unsuitable type; or the table does not fit; or the database
                refuses access.
            TransientError: The database does not answer.
        """
        written = self._checked(output)
        with transaction(context.connection) as connection:
            self._table.check(connection, written, sink=self.name)

    def prepare(self, spark: "SparkSession", context: SinkContext, output: "StructType") -> None:  # noqa: ARG002
        """Create the table, and that of the batches, where they are missing; raise as `check` does."""
        written = self._checked(output)
        with transaction(context.connection) as connection:
            self._table.check(connection, written, sink=self.name)
            self._table.create(connection, written)

    def last_batch(self, context: SinkContext, query_id: str) -> int | None:
        """Return the newest batch of a query that the table has."""
        with transaction(context.connection) as connection:
            return self._table.last_batch(connection, query_id, self.name)

    def write(self, rows: "DataFrame", batch: SinkBatch) -> None:
        """Write the rows in one transaction, unless the table has the batch."""
        with transaction(batch.context.connection) as connection:
            if self._table.begin(connection, batch.identity, self.name):
                self._copy(rows.drop(ORIGIN, BATCH), connection)

    def _copy(self, rows: "DataFrame", connection: "Connection[Any]") -> None:
        changes = self._changes(rows)
        types = {column.name: column.dataType for column in changes.schema}
        lines = changes.select(
            *(copy_text(changes[sql_identifier(name)], kind) for name, kind in types.items())
        ).toLocalIterator(prefetchPartitions=True)
        if not self.keys:
            append(connection, self._table, list(types), lines)
            return
        order = None if self.sequence_by is None else types[self.sequence_by].simpleString()
        upsert(
            connection,
            self._table,
            list(types),
            lines,
            sequence_by=self.sequence_by,
            by_bytes=order == "string",
        )

    @property
    def _table(self) -> PostgresTable:
        schema, name = schema_and_name(self.table, field="JdbcSink: table")
        return PostgresTable(schema, name, tuple(self.keys))

    def _checked(self, output: "StructType") -> "StructType":
        """Return the columns that are written."""
        from pyspark.sql.types import StructType

        fields = [column for column in output.fields if column.name not in (ORIGIN, BATCH)]
        names = [column.name for column in fields]
        needed = (*self.keys, *([] if self.sequence_by is None else [self.sequence_by]))
        if missing := [column for column in needed if column not in names]:
            raise columns_unsuitable(
                f"its output has no column {missing[0]!r}, which the sink {self.name!r} needs (it has "
                f"{', '.join(names)}).",
                fix="let the function return the column, or correct keys= or sequence_by=.",
            )
        for column in fields:
            if created_type(column.dataType) is None:
                raise columns_unsuitable(
                    f"its column {column.name!r} is {column.dataType.simpleString()}, which a table in Postgres cannot "
                    f"have (sink {self.name!r}).",
                    fix="cast the column in the function, or leave it out.",
                )
            if len(column.name.encode()) > LONGEST_NAME:
                raise columns_unsuitable(
                    f"its column {column.name!r} has a name of more than {LONGEST_NAME} bytes, which Postgres would "
                    f"cut (sink {self.name!r}).",
                    fix="give the column a shorter name in the function.",
                )
        return StructType(fields)

    def _changes(self, rows: "DataFrame") -> "DataFrame":
        """Return what is written of a batch: all rows, or one per key, as a DeltaMerge takes them."""
        from pyspark.sql import functions as F

        if not self.keys:
            return rows
        needed = [column for column in (*self.keys, self.sequence_by) if column is not None]
        unusable = F.lit(False)
        for column in needed:
            unusable |= F.col(sql_identifier(column)).isNull()
        rows = merging.refused(rows, unusable, f"{NULL_KEY_MARK}:{', '.join(needed)}")
        if self.sequence_by is None:
            return merging.single(rows, self.keys, f"{DUPLICATE_KEY_MARK}:{', '.join(self.keys)}")
        changes = rows.withColumn(DELETED, F.lit(False))
        return merging.newest(changes, self.keys, self.sequence_by).drop(DELETED)

"""Append to the table of another stream."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidemill.definitions.columns import BATCH, BOOKKEEPING
from tidemill.definitions.sink import (
    Delivery,
    SinkBatch,
    SinkContext,
    TableSink,
    Transaction,
    transaction_app_id,
)
from tidemill.errors import SchemaChangeError, TransientError
from tidemill.sinks.external_sink import ExternalSink
from tidemill.sinks.table_sink import schema_of, was_written
from tidemill.storage.store import Store
from tidemill.storage.table_ref import TableRef
from tidemill.text.names import StreamName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tidemill.definitions.options import OutputMode
    from tidemill.target.target import Target


@dataclass(frozen=True, slots=True)
class SharedTable:
    """The table of another stream.

    Attributes:
        control: The control files of that stream, which record who appends to its table.
    """

    table: TableRef
    control: Store


@dataclass(frozen=True)
class SharedAppend(ExternalSink):
    """What a `DeltaAppend(into=...)` stands for: the rows of a batch go into the main table of another stream.

    The stream has a table of its commits, as with the sinks that are no tables. The transaction in the shared table has
    the identity of this stream's query, so neither stream takes a batch of the other for its own.

    Attributes:
        into: The stream whose table it is.
        table: The main sink of that stream.
    """

    into: StreamName
    table: TableSink
    name: str = field(kw_only=True)

    @property
    def identity(self) -> Mapping[str, object]:
        """The stream to whose table it appends."""
        return {"into": str(self.into)}

    @property
    def kind(self) -> str:
        """What declares it."""
        return "DeltaAppend"

    @property
    def delivery(self) -> Delivery:
        """Each batch is one Delta transaction with its identity."""
        return "exactly once"

    @property
    def appends_into(self) -> StreamName:
        """The stream whose table it is."""
        return self.into

    def refuses(self, output_mode: "OutputMode") -> str | None:
        """Refuse what the sink of the table refuses."""
        return self.table.refuses(output_mode)

    def connection(self, target: "Target") -> SharedTable:
        """Return the table."""
        return SharedTable(target.lake.table(self.into), target.lake.records(self.into))

    def check(self, context: SinkContext, output: "StructType") -> None:
        """Check that the table has been written by its own stream, which creates it, and that it has the columns.

        A column of the table that the output lacks is NULL.

        Raises:
            TransientError: It has not been written.
            SchemaChangeError: It lacks a column, or has another type.
        """
        shared: TableRef = context.connection.table
        table = shared.open()
        if table is None or not was_written(shared):
            raise TransientError(
                f"the table of {self.into}, to which its sink {self.name!r} appends, has no batch yet.",
                fix=f"tidemill run {self.into}",
                code="shared-table-missing",
            )
        types = {column.name: column.dataType.simpleString() for column in schema_of(table)}
        for column in output:
            name, kind = column.name, column.dataType.simpleString()
            if name == BATCH or (name in BOOKKEEPING and name not in types):
                continue
            if name not in types:
                raise SchemaChangeError(
                    f"the output has the column {name!r}, and the table of {self.into} does not.",
                    fix=f"drop the column in the function, or let {self.into} return it first.",
                    code="column-added",
                )
            if types[name] != kind:
                raise SchemaChangeError(
                    f"the column {name!r} is {kind} in the output and {types[name]} in the table of {self.into}.",
                    fix=f"cast it to {types[name]} in the function.",
                    code="column-type-changed",
                )

    def prepare(self, spark: "SparkSession", context: SinkContext, output: "StructType") -> None:
        """Record that the stream appends to the table; raise as `check` does."""
        del spark
        self.check(context, output)
        *_, pipeline, table = context.table.key.split("/")
        record_appending(context.connection.control, StreamName(pipeline, table.partition("__")[0]))

    def last_batch(self, context: SinkContext, query_id: str) -> int | None:
        """Return the newest batch of a query that the table has; None where it has none."""
        table = context.connection.table.open()
        return None if table is None else table.transaction_version(transaction_app_id(query_id, self.name))

    def write(self, rows: "DataFrame", batch: SinkBatch) -> None:
        """Append the rows in one commit, which Delta skips where the table has it already."""
        identity, shared = batch.identity, batch.context.connection.table
        transaction = Transaction(transaction_app_id(identity.query_id, self.name), identity.batch_id)
        known = schema_of(shared.open()).names
        dropped = [name for name in BOOKKEEPING if name == BATCH or name not in known]
        metadata = replace(batch.metadata, appended_by=identity.stream)
        self.table.commit(rows.drop(*dropped), shared, transaction, metadata)


_APPENDING = "appended-by"


def record_appending(control: Store, stream: StreamName) -> None:
    """Record in the control files of a stream that another one appends to its table."""
    if stream not in appending(control):
        control.replace(f"{_APPENDING}/{stream.pipeline}/{stream.stream}", b"")


def appending(control: Store) -> list[StreamName]:
    """Return the streams that append, or once appended, to the table of the stream with these control files."""
    return [
        StreamName(pipeline, stream)
        for pipeline in sorted(control.names(_APPENDING))
        for stream in sorted(control.names(f"{_APPENDING}/{pipeline}"))
    ]

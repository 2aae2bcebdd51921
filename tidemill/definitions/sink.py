"""Sinks as data: what a stream writes, and what the rest of Tidemill asks a sink for.

A property says what is true of every table of a kind, such as `rows_are_replaced`: code outside `tidemill/sinks` asks
for it and never for the class.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tidemill.definitions.arguments import Declared
from tidemill.text.catalog_name import CatalogName
from tidemill.text.names import MAIN_SINK, valid_rule_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

    from tidemill.definitions.options import OutputMode
    from tidemill.storage.table_ref import TableRef
    from tidemill.text.names import StreamName

Delivery = Literal["exactly once", "at least once"]


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """What a commit records about the micro-batch that wrote it, as Delta's `userMetadata`.

    Attributes:
        batch_id: Spark's batch id; None in the native sink, whose commits carry it themselves.
        fingerprint: The fingerprint of the query's plan.
        static_versions: The Delta version of each static reading.
        rows_read: Records of the feed, where foreachBatch counted them.
        rows_quarantined: Records and rows that went to quarantine.
        rows_out_quarantined: Rows of the output among them, where rules can send them there.
        rows_out: Rows that left the function, where foreachBatch counted them.
        rows_dropped: Rows left out by expectations, likewise.
        rows_written: Rows of the batch, where the table has only the commit and its other sinks have the rows.
        violations: Violations by expectation, likewise.
        merge_order: How a merge orders changes: by its sequence column, or by batch; None for other sinks.
        operation: The id of the operation that wrote it, such as a replay; None for a batch.
        appended_by: The stream that appended to the table of another one; None in a table of its own.
        validation: How the records of a feed were validated, where its quarantine follows this commit: the counts above
            are then not known yet.
    """

    batch_id: int | None
    fingerprint: str
    static_versions: Mapping[str, int] = field(default_factory=dict)
    rows_read: int | None = None
    rows_quarantined: int | None = None
    rows_out_quarantined: int | None = None
    rows_out: int | None = None
    rows_dropped: int | None = None
    rows_written: int | None = None
    violations: Mapping[str, int] = field(default_factory=dict)
    merge_order: Literal["sequence", "batch"] | None = None
    operation: str | None = None
    appended_by: str | None = None
    validation: Mapping[str, Any] | None = None

    def to_json(self) -> str:
        """Return the metadata as JSON."""
        return json.dumps({"tidemill": asdict(self)}, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Transaction:
    """The identity of one write: Delta skips a write whose (app id, version) a table already has.

    Attributes:
        app_id: The query id for the main table, `<query id>/<sink>` for others.
        version: The batch id.
    """

    app_id: str
    version: int


def transaction_app_id(query_id: str, sink: str = MAIN_SINK) -> str:
    """Return the app id of a sink's Delta transactions: the query id, with the sink's name for further sinks.

    Spark's own Delta sink uses the query id, so that both ways to write a batch share one identity.
    """
    return query_id if sink == MAIN_SINK else f"{query_id}/{sink}"


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """One micro-batch. A repeat of the batch after an error or a kill has the same identity.

    Attributes:
        stream: The stream, as `<pipeline>/<stream>`.
        query_id: Spark's query id. A rewind, a reset and a rebuild begin another one.
        batch_id: Spark's batch id, which counts from 0 within a query.
    """

    stream: str
    query_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class SinkContext:
    """Where a sink of a stream writes: plain values, because Spark Connect ships them to its server.

    Attributes:
        table: The table with the sink's name.
        connection: What `Sink.connection` returned for the target.
    """

    table: "TableRef"
    connection: Any = None


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """One micro-batch for one sink.

    Attributes:
        context: Where the sink writes.
        metadata: What a commit records about the batch.
    """

    identity: BatchIdentity
    context: SinkContext
    metadata: CommitMetadata


@dataclass(frozen=True)
class Sink(Declared, ABC):
    """Base of all sinks.

    A run calls `check` and `prepare` before its query, and `write` once per micro-batch, in the order of the sinks and
    before the main table commits. A batch that the main table has is not written again.

    Attributes:
        name: The name, unique within the stream.
    """

    name: str = field(kw_only=True)

    def __post_init__(self) -> None:
        valid_rule_name(self.name, field="sink")

    @property
    @abstractmethod
    def delivery(self) -> Delivery:
        """How often a row arrives where a batch is repeated: a guarantee that a test per kind proves."""

    @property
    def kind(self) -> str:
        """What it is, in messages and in `status`."""
        return type(self).__name__

    @property
    def identity(self) -> Mapping[str, object]:
        """Where a sink that is no table writes, as JSON without secrets: elsewhere it is a new one."""
        return {}

    @property
    def keeps_rows(self) -> bool:
        """Whether somebody needs the rows of all batches."""
        return True

    @property
    def forgets_batches(self) -> bool:
        """Whether `last_batch` may be None although the sink has had batches of the query."""
        return False

    @property
    def is_direct(self) -> bool:
        """Whether a query without micro-batches can write it: it then has a `stream_writer`."""
        return False

    @property
    def reads_rows_once(self) -> bool:
        """Whether `write` executes the plan of the rows exactly once."""
        return False

    @property
    def resolved(self) -> "Sink":
        """The sink that a stream has where this one is declared."""
        return self

    @property
    def appends_into(self) -> "StreamName | None":
        """The stream to whose table it appends; None for a sink that writes elsewhere."""
        return None

    @property
    @abstractmethod
    def commit_table(self) -> "TableSink | None":
        """The main table of a stream without a table sink; None for a table sink."""

    def refuses(self, output_mode: "OutputMode") -> str | None:
        """Return why the sink cannot take the rows of an output mode, as the end of a sentence; None where it can."""

    def connection(self, target: Any) -> Any:  # noqa: ARG002 - a table needs its folder only
        """Return what the sink needs of a target: plain values, with the names of secrets and never their values.

        Raises:
            ConfigurationError: The target lacks it.
        """
        return None

    def check(self, context: SinkContext, output: "StructType") -> None:
        """Check, without writing, that the sink can take an output with these columns.

        Raises:
            TidemillError: It cannot.
        """

    def prepare(self, spark: "SparkSession", context: SinkContext, output: "StructType") -> None:
        """Make the sink ready for an output with these columns.

        Raises:
            TidemillError: What `check` raises.
        """

    def stream_writer(self, rows: "DataFrame", connection: Any) -> "DataStreamWriter":
        """Return a writer by Spark's own sink, for a query without micro-batches.

        Args:
            rows: The streaming output.
            connection: What `connection` returned for the target.

        Raises:
            NotImplementedError: The kind is not `is_direct`.
        """
        raise NotImplementedError

    def last_batch(self, context: SinkContext, query_id: str) -> int | None:
        """Return the newest batch of a query that the sink has; None where that is unknown: it is written again."""

    @abstractmethod
    def write(self, rows: "DataFrame", batch: SinkBatch) -> None:
        """Write the rows of one micro-batch."""


@dataclass(frozen=True)
class TableSink(Sink):
    """Base of the sinks that are Delta tables.

    Attributes:
        name: `main` for the table with the stream's own name; another name stands for the table
            `<stream>__<name>`. In a list of sinks exactly one is `main`; it is written last.
        table: The name under which a catalog has the table, as `catalog.schema.table`; None: a name in the catalog of
            the target, where that has one.
    """

    name: str = field(default=MAIN_SINK, kw_only=True)
    # Under which name others find the rows changes nothing about them.
    table: str | None = field(default=None, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.table is not None:
            CatalogName.parse(self.table, field=f"{type(self).__name__}: table")

    @property
    def delivery(self) -> Delivery:
        """Each batch is one Delta transaction with its identity."""
        return "exactly once"

    @property
    def commit_table(self) -> None:
        """A table commits its batches itself."""

    @property
    def has_rows(self) -> bool:
        """Whether the table has the rows of the output, so that others can read them."""
        return True

    @property
    def native(self) -> bool:
        """Whether Spark's own Delta sink can write it, without foreachBatch."""
        return False

    @property
    def key_columns(self) -> Sequence[str]:
        """The columns whose values a later batch replaces; empty where rows are not replaced by key."""
        return ()

    @property
    def row_identity(self) -> tuple[str, ...]:
        """The columns that identify a row; empty where none do."""
        return ()

    @property
    def rows_are_replaced(self) -> bool:
        """Whether a batch can replace or delete rows of earlier batches by key, as a merge does."""
        return bool(self.key_columns)

    @property
    def batch_is_whole_result(self) -> bool:
        """Whether the table is the last batch alone, as in output mode `complete`."""
        return False

    @property
    def only_appends(self) -> bool:
        """Whether a batch only adds rows."""
        return not self.rows_are_replaced and not self.batch_is_whole_result

    @property
    def orders_changes(self) -> bool:
        """Whether changes of one key are ordered by a column, in whatever order they arrive."""
        return False

    @property
    def has_versions(self) -> bool:
        """Whether the table has every version of a row, with its validity."""
        return False

    @property
    def tombstone_times(self) -> tuple[str, ...]:
        """The columns that date a tombstone where they are times; empty where a delete leaves none."""
        return ()

    @property
    def change_feed(self) -> bool:
        """Whether the table has a change data feed, the only way to stream it."""
        return False

    @property
    def reads_rows_once(self) -> bool:
        """Whether `write` executes the plan of the rows exactly once, as Spark's own sink does."""
        return self.native

    @property
    def identity(self) -> dict[str, object]:
        """What the rows of its table depend on, as JSON: a table of another identity cannot be continued."""
        return {"kind": type(self).__name__}

    @property
    def partition_by(self) -> Sequence[str]:
        """The columns that the table is partitioned by."""
        return ()

    @property
    def cluster_by(self) -> Sequence[str]:
        """The columns that the table is clustered by."""
        return ()

    @property
    def merge_schema(self) -> bool:
        """Whether new columns of the output are added to the table."""
        return True

    @abstractmethod
    def check_recorded(self, context: SinkContext, recorded: Mapping[str, object]) -> None:
        """Check that a table of a recorded identity can be continued.

        Raises:
            SchemaChangeError: It was written by another kind of sink, or its rows depend on other columns.
        """

    @abstractmethod
    def table_schema(self, output: "StructType") -> "StructType":
        """Return the table's columns for an output with these columns."""

    @abstractmethod
    def commit(
        self, rows: "DataFrame", table: "TableRef", transaction: Transaction, metadata: CommitMetadata
    ) -> None:
        """Write rows into the table in one Delta transaction."""

    @abstractmethod
    def replace_range(
        self,
        rows: "DataFrame",
        current: "DataFrame",
        table: "TableRef",
        *,
        condition: str,
        transaction: Transaction,
        user_metadata: str,
    ) -> None:
        """Replace the rows of a range in one Delta transaction.

        Args:
            rows: The rows that the table gets, tombstones included.
            current: The rows of the table that they replace.
            condition: The range, in SQL.
            transaction: The identity of the commit: Delta skips it where the table has it already.
        """

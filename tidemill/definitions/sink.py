"""The base of all sinks: a name, a schema, and one transaction per micro-batch."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tidemill.text.names import MAIN_SINK, valid_rule_name

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """What a commit records about the micro-batch that wrote it, as Delta's `userMetadata`.

    Attributes:
        batch_id: Spark's batch id; None in the native sink, whose commits carry it themselves.
        fingerprint: The fingerprint of the query's plan.
        static_versions: The Delta version of each static reading.
        rows_read: Records of the feed, where foreachBatch counted them.
        rows_quarantined: Records that went to quarantine.
        rows_out: Rows that left the function, where foreachBatch counted them.
        rows_dropped: Rows left out by expectations, likewise.
        violations: Violations by expectation, likewise.
        merge_order: How a merge orders changes: by its sequence column, or by batch; None for other sinks.
        operation: The id of the operation that wrote it, such as a replay; None for a batch.
        validation: How the records of a feed were validated, where its quarantine follows this commit: the counts above
            are then not known yet.
    """

    batch_id: int | None
    fingerprint: str
    static_versions: Mapping[str, int] = field(default_factory=dict)
    rows_read: int | None = None
    rows_quarantined: int | None = None
    rows_out: int | None = None
    rows_dropped: int | None = None
    violations: Mapping[str, int] = field(default_factory=dict)
    merge_order: Literal["sequence", "batch"] | None = None
    operation: str | None = None
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


@dataclass(frozen=True)
class Sink(ABC):
    """Base of all sinks.

    Attributes:
        name: `main` for the table with the stream's own name; another name stands for the table
            `<stream>__<name>`. In a list of sinks exactly one is `main`; it is written last.
    """

    name: str = field(default=MAIN_SINK, kw_only=True)

    def __post_init__(self) -> None:
        valid_rule_name(self.name, what="sink")

    @property
    def native(self) -> bool:
        """Whether Spark's own Delta sink can write it, without foreachBatch."""
        return False

    @property
    def rows_are_replaced(self) -> bool:
        """Whether a batch can replace or delete rows of earlier batches by key, as a merge does."""
        return False

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
    def reads_rows_once(self) -> bool:
        """Whether `write` executes the plan of the rows exactly once."""
        return self.native

    @property
    def identity(self) -> dict[str, object]:
        """What the rows of its table depend on, as JSON: a table of another identity cannot be continued."""
        return {"kind": type(self).__name__}

    @abstractmethod
    def table_schema(self, output: "StructType") -> "StructType":
        """Return the table's columns for an output with these columns."""

    @abstractmethod
    def create_options(self) -> str:
        """Return the clauses of CREATE TABLE after `USING delta`: layout and table properties."""

    @abstractmethod
    def write(
        self, rows: "DataFrame", table: "Path", transaction: Transaction, metadata: CommitMetadata
    ) -> None:
        """Write one micro-batch into the table, in one Delta transaction."""


def run_in_transaction(
    spark: "SparkSession", statement: str, transaction: Transaction, user_metadata: str
) -> None:
    """Run one SQL statement that commits the transaction's identity with its change.

    Delta takes the identity of MERGE, UPDATE and DELETE from session confs (Delta docs, "Idempotent
    table writes in foreachBatch"); they are unset afterwards, because a second statement under the same
    identity would be skipped.
    """
    confs = {
        "spark.databricks.delta.write.txnAppId": transaction.app_id,
        "spark.databricks.delta.write.txnVersion": str(transaction.version),
        "spark.databricks.delta.commitInfo.userMetadata": user_metadata,
    }
    for key, value in confs.items():
        spark.conf.set(key, value)
    try:
        spark.sql(statement)
    finally:
        for key in confs:
            spark.conf.unset(key)

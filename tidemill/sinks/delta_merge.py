"""Merge changes into a Delta table by key: the current row (SCD 1) or the whole history (SCD 2).

The arguments are named as in AUTO CDC of Spark's declarative pipelines. With a sequence column a delete leaves a
tombstone (the key, the sequence, `_deleted`), so that an older change that arrives later cannot bring the row back;
streams that read the table never see tombstones, and its change data feed has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tidemill.definitions.columns import (
    BOOKKEEPING,
    CHANGE_COLUMNS,
    DELETED,
    END_AT,
    START_AT,
    refuse_reserved,
)
from tidemill.definitions.sink import CommitMetadata, Transaction
from tidemill.errors import DefinitionError, TerminalError
from tidemill.sinks import changes as merging
from tidemill.sinks.key_range import EVERYWHERE, key_range
from tidemill.sinks.replacement import replacement
from tidemill.sinks.table_sink import DeltaSink, add_columns, new_columns, run_in_transaction
from tidemill.text.names import sql_identifier
from tidemill.text.sql_parsing import valid_condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tidemill.definitions.options import OutputMode
    from tidemill.storage.table_ref import TableRef

NULL_KEY_MARK = "TIDEMILL_MERGE_NULL_KEY"
DUPLICATE_KEY_MARK = "TIDEMILL_MERGE_DUPLICATE_KEY"


@dataclass(frozen=True)
class DeltaMerge(DeltaSink):
    """Changes merged by key, in the order of a sequence column, whatever order they arrive in.

    In output mode `update`, `sequence_by` may be left out: each batch then replaces what earlier batches wrote for
    its keys, and deletes remove the row without a tombstone. With `sequence_by`, an update whose sequence is not
    higher than that of the row in the table is ignored, and counted as `rows_ignored`: a sum that falls or an
    average is no sequence.

    Attributes:
        keys: Columns that identify a row.
        sequence_by: The column that orders the changes of one key; it is kept in the table. None orders them by
            batch, in output mode `update` only.
        apply_as_deletes: A condition in SQL over the output; a change that meets it deletes the row.
        except_columns: Columns of the output that are left out of the table.
        scd_type: 1 keeps the current row of a key; 2 keeps every version, with `__START_AT` and
            `__END_AT` (NULL while it is valid).
        valid_by: The column whose values start and end a version with `scd_type=2`, such as the time of the
            change; the default is `sequence_by`.
        cluster_by: Columns that the table is clustered by. A merge reads only the files in the range of the
            batch's keys where a key is among them and is an integer, a date or a timestamp.
        merge_schema: Whether new nullable columns of the output are added to the table.
    """

    keys: Sequence[str]
    sequence_by: str | None = None
    apply_as_deletes: str | None = None
    except_columns: Sequence[str] = ()
    scd_type: Literal[1, 2] = 1
    valid_by: str | None = None
    cluster_by: Sequence[str] = ()
    merge_schema: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.keys:
            raise DefinitionError("DeltaMerge: keys is empty; name the columns that identify a row.")
        if self.sequence_by is not None and (not isinstance(self.sequence_by, str) or not self.sequence_by):
            raise DefinitionError(
                f"DeltaMerge: sequence_by is {self.sequence_by!r}; name the column that orders changes."
            )
        if self.scd_type not in (1, 2):
            raise DefinitionError(f"DeltaMerge: scd_type is {self.scd_type!r}; it is 1 or 2.")
        if self.has_versions and self.sequence_by is None:
            raise DefinitionError(
                "DeltaMerge: scd_type=2 needs sequence_by, the column that orders the versions of a key.",
                code="arguments-conflict",
            )
        if self.valid_by is not None and self.scd_type == 1:
            raise DefinitionError(
                "DeltaMerge: valid_by needs scd_type=2; only versions have a validity.",
                code="arguments-conflict",
            )
        if self.apply_as_deletes is not None:
            valid_condition(self.apply_as_deletes, field="DeltaMerge: apply_as_deletes")
        if lost := sorted(set(self._needed).intersection(self.except_columns)):
            raise DefinitionError(
                f"DeltaMerge: except_columns has {lost}, which the merge itself needs.",
                code="arguments-conflict",
            )

    @property
    def key_columns(self) -> Sequence[str]:
        """The columns that identify what a change is of."""
        return self.keys

    @property
    def orders_changes(self) -> bool:
        """Whether `sequence_by` orders the changes of one key."""
        return self.sequence_by is not None

    @property
    def has_versions(self) -> bool:
        """Whether every version of a key is kept."""
        return self.scd_type == 2  # noqa: PLR2004 - a type by its number

    @property
    def tombstone_times(self) -> tuple[str, ...]:
        """The columns that order and date the changes; without a sequence a delete leaves no tombstone."""
        return tuple(column for column in (self.sequence_by, self.valid_by) if column is not None)

    @property
    def change_feed(self) -> bool:
        """A merge rewrites rows, so its change data feed is the only way to stream the table."""
        return True

    @property
    def identity(self) -> dict[str, object]:
        """The kind of table and what its rows are identified, ordered and dated by."""
        return {
            "kind": "DeltaMerge",
            "keys": sorted(self.keys),
            "sequence_by": self.sequence_by,
            "scd_type": self.scd_type,
            "valid_by": self._validity if self.has_versions else None,
        }

    @property
    def row_identity(self) -> tuple[str, ...]:
        """The columns that identify a row of the table; with `scd_type=2` a row is a version of its key."""
        if self.scd_type == 1 or self.sequence_by is None:
            return tuple(self.keys)
        return (*self.keys, self.sequence_by)

    @property
    def _validity(self) -> str | None:
        return self.valid_by or self.sequence_by

    @property
    def _needed(self) -> tuple[str, ...]:
        """The columns that the merge works with, each once."""
        columns = (*self.keys, self.sequence_by, self._validity)
        return tuple(dict.fromkeys(column for column in columns if column is not None))

    def table_schema(self, output: "StructType") -> "StructType":
        """Return the kept columns, for SCD 2 the validity, and `_deleted`.

        Raises:
            TerminalError: The output has not the columns of the merge, or one that the change data feed adds.
        """
        from pyspark.sql.types import BooleanType, StructField, StructType

        fields = [f for f in output.fields if f.name not in self.except_columns]
        refuse_reserved((f.name for f in fields), CHANGE_COLUMNS, where="the function's output")
        by_name = {f.name: f for f in fields}
        if missing := [column for column in self._needed if column not in by_name]:
            raise TerminalError(
                f"the merge needs the column {missing[0]!r}, and the output has {sorted(by_name)}.",
                fix="add the column to the function's output, or correct keys=, sequence_by= or valid_by=.",
                code="merge-column-missing",
            )
        if self.has_versions and self._validity is not None:
            validity = by_name[self._validity].dataType
            fields += [StructField(START_AT, validity), StructField(END_AT, validity)]
        return StructType([*fields, StructField(DELETED, BooleanType())])

    def refuses(self, output_mode: "OutputMode") -> str | None:
        """Refuse changes in any order without the column that orders them."""
        if output_mode == "append" and not self.orders_changes:
            return (
                "a DeltaMerge without sequence_by: changes can arrive in any order, so name the column that orders "
                "them. Only output_mode='update' is ordered by batch."
            )
        return super().refuses(output_mode)

    def commit(
        self, rows: "DataFrame", table: "TableRef", transaction: Transaction, metadata: CommitMetadata
    ) -> None:
        """Merge in one commit, which Delta skips where the table has the transaction already."""
        order: Literal["batch", "sequence"] = "batch" if self.sequence_by is None else "sequence"
        metadata = replace(metadata, merge_order=order)
        within = key_range(rows, [key for key in self.keys if key in self.cluster_by])
        merge = _Merge(table, within, transaction, metadata.to_json())
        usable = self._usable(rows)
        if self.sequence_by is None:
            self._merge_by_batch(usable, merge)
        elif self.has_versions:
            self._merge_versions(usable, self.sequence_by, merge)
        else:
            self._merge_rows(usable, self.sequence_by, merge)

    def replace_range(
        self,
        rows: "DataFrame",
        current: "DataFrame",
        table: "TableRef",
        *,
        condition: str,  # noqa: ARG002 - the rows of the same keys are replaced
        transaction: Transaction,
        user_metadata: str,
    ) -> None:
        """Replace the current rows by their identity, after adding the columns that are new."""
        add_columns(rows.sparkSession, table, new_columns(current.schema, rows.schema, table))
        source = replacement(rows, current, self.row_identity)
        same = merging.same_match_columns(self.row_identity)
        merge = _Merge(table, EVERYWHERE, transaction, user_metadata)
        merge.run(source, rows.columns, same, merging.BY_ACTION)

    def _usable(self, rows: "DataFrame") -> "DataFrame":
        """Return the kept columns and `_deleted`; a row without a key or a sequence stops the batch."""
        from pyspark.sql import functions as F

        needed = [column for column in (*self.keys, self.sequence_by) if column is not None]
        unusable = F.lit(False)
        for column in needed:
            unusable |= F.col(sql_identifier(column)).isNull()
        rows = merging.refused(rows, unusable, f"{NULL_KEY_MARK}:{', '.join(needed)}")
        deletes = F.coalesce(F.expr(f"({self.apply_as_deletes or 'false'})"), F.lit(False))
        return rows.withColumn(DELETED, deletes).drop(*self.except_columns)

    def _merge_by_batch(self, rows: "DataFrame", merge: "_Merge") -> None:
        source = merging.single(rows, self.keys, f"{DUPLICATE_KEY_MARK}:{', '.join(self.keys)}")
        clauses = (
            f"WHEN MATCHED AND s.{DELETED} THEN DELETE WHEN MATCHED THEN {{update}} "
            f"WHEN NOT MATCHED AND NOT s.{DELETED} THEN {{insert}}"
        )
        merge.run(source, source.columns, merging.same_columns(self.keys), clauses)

    def _merge_rows(self, rows: "DataFrame", sequence: str, merge: "_Merge") -> None:
        changes = merging.newest(rows, self.keys, sequence)
        if self.apply_as_deletes is None:
            source, same = changes, merging.same_columns(self.keys)
            newer = f"s.{sql_identifier(sequence)} > t.{sql_identifier(sequence)}"
            clauses = f"WHEN MATCHED AND {newer} THEN {{update}} WHEN NOT MATCHED THEN {{insert}}"
        else:
            changes = self._bare(changes)
            source = merging.row_actions(changes, merge.table_rows(rows.sparkSession), self.keys, sequence)
            same, clauses = merging.same_match_columns(self.keys), merging.BY_ACTION
        merge.run(source, changes.columns, same, clauses)

    def _merge_versions(self, rows: "DataFrame", sequence: str, merge: "_Merge") -> None:
        version = [*self.keys, sequence]
        changes = self._bare(merging.newest(rows, version, sequence)).persist()
        try:
            changes.count()  # the changes are used twice, and the batch must be executed once
            history = merge.table_rows(rows.sparkSession)
            validity = self._validity or sequence
            source = merging.version_actions(changes, history, self.keys, sequence, validity)
            columns = [*changes.columns, START_AT, END_AT]
            merge.run(source, columns, merging.same_match_columns(version), merging.BY_ACTION)
        finally:
            changes.unpersist()

    def _bare(self, changes: "DataFrame") -> "DataFrame":
        return merging.bare_tombstones(changes, [*self._needed, *BOOKKEEPING, DELETED])


@dataclass(frozen=True, slots=True)
class _Merge:
    """One commit of changes into a table.

    Attributes:
        within: The condition that the keys of the table are in the range of those of the batch.
        transaction: The identity of the commit.
    """

    table: "TableRef"
    within: str
    transaction: Transaction
    user_metadata: str

    def table_rows(self, spark: "SparkSession") -> "DataFrame":
        """Return the rows of the table whose keys are in the range."""
        return spark.read.format("delta").load(str(self.table)).alias("t").where(self.within)

    def run(self, source: "DataFrame", columns: Sequence[str], same: str, clauses: str) -> None:
        """Merge a source: see `merge_statement`."""
        source.createOrReplaceTempView("tidemill_changes")
        statement = merging.merge_statement(str(self.table), columns, f"{same} AND {self.within}", clauses)
        run_in_transaction(source.sparkSession, statement, self.transaction, self.user_metadata)

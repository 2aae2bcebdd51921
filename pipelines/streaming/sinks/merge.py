"""Merge changes into a Delta table by key: the current row (SCD 1) or the whole history (SCD 2).

The arguments are named as in AUTO CDC of Spark's declarative pipelines. Deletes leave tombstones (the key, the
sequence, `_deleted`), so that an older change that arrives later cannot bring a row back; streams that read the
table never see them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pipelines.streaming.columns import DELETED, END_AT, START_AT
from pipelines.streaming.errors import DefinitionError, TerminalError
from pipelines.streaming.names import quoted
from pipelines.streaming.sinks.delta import column_names, layout
from pipelines.streaming.sinks.sink import CommitMetadata, Sink, Transaction, run_in_transaction
from pipelines.streaming.sql import valid_condition

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class DeltaMerge(Sink):
    """Changes merged by key, in the order of a sequence column, whatever order they arrive in.

    Attributes:
        keys: Columns that identify a row.
        sequence_by: The column that orders the changes of one key; it is kept in the table.
        apply_as_deletes: A condition in SQL over the output; a change that meets it deletes the row.
        except_columns: Columns of the output that are left out of the table.
        scd_type: 1 keeps the current row of a key; 2 keeps every version, with `__START_AT` and
            `__END_AT` (NULL while it is valid).
        valid_by: The column whose values start and end a version with `scd_type=2`, such as the time of the
            change; the default is `sequence_by`.
        cluster_by: Columns that the table is clustered by.
        merge_schema: Whether new columns of the output are added to the table.
    """

    keys: Sequence[str]
    sequence_by: str
    apply_as_deletes: str | None = None
    except_columns: Sequence[str] = ()
    scd_type: Literal[1, 2] = 1
    valid_by: str | None = None
    cluster_by: Sequence[str] = ()
    merge_schema: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for what, columns in (
            ("keys", self.keys),
            ("except_columns", self.except_columns),
            ("cluster_by", self.cluster_by),
        ):
            object.__setattr__(self, what, column_names(columns, what=f"DeltaMerge: {what}"))
        if not self.keys:
            raise DefinitionError("DeltaMerge: keys is empty; name the columns that identify a row.")
        if not isinstance(self.sequence_by, str) or not self.sequence_by:
            raise DefinitionError(
                f"DeltaMerge: sequence_by is {self.sequence_by!r}; name the column that orders changes."
            )
        if self.scd_type not in (1, 2):
            raise DefinitionError(f"DeltaMerge: scd_type is {self.scd_type!r}; it is 1 or 2.")
        if self.valid_by is not None and self.scd_type == 1:
            raise DefinitionError("DeltaMerge: valid_by needs scd_type=2; only versions have a validity.")
        if self.apply_as_deletes is not None:
            valid_condition(self.apply_as_deletes, what="DeltaMerge: apply_as_deletes")
        kept = {*self.keys, self.sequence_by, self.valid_by or self.sequence_by}
        if lost := sorted(kept.intersection(self.except_columns)):
            raise DefinitionError(f"DeltaMerge: except_columns has {lost}, which the merge itself needs.")

    def table_schema(self, output: "StructType") -> "StructType":
        """Return the kept columns, for SCD 2 the validity, and `_deleted`."""
        from pyspark.sql.types import BooleanType, StructField, StructType

        fields = [f for f in output.fields if f.name not in self.except_columns]
        by_name = {f.name: f for f in fields}
        needed = [*self.keys, self.sequence_by, self.valid_by or self.sequence_by]
        if missing := [column for column in needed if column not in by_name]:
            raise TerminalError(
                f"the merge needs the column {missing[0]!r}, and the output has {sorted(by_name)}.",
                fix="add the column to the function's output, or correct keys=, sequence_by= or valid_by=.",
            )
        if self.scd_type == 2:  # noqa: PLR2004 - a type by its number
            validity = by_name[self.valid_by or self.sequence_by].dataType
            fields += [StructField(START_AT, validity), StructField(END_AT, validity)]
        return StructType([*fields, StructField(DELETED, BooleanType())])

    def create_options(self) -> str:
        """Return the layout, and the change data feed: the only way to stream a merge table."""
        return f"{layout((), self.cluster_by)} TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"

    def write(
        self, rows: "DataFrame", table: "Path", transaction: Transaction, metadata: CommitMetadata
    ) -> None:
        """Merge in one commit, which Delta skips where the table has the transaction already."""
        spark = rows.sparkSession
        changes = self._changes(rows)
        if self.scd_type == 1:
            source, statement = changes, self._merge_current(table)
        else:
            history = spark.read.format("delta").load(str(table))
            source, statement = self._versions(changes, history), self._merge_versions(table)
        source.createOrReplaceTempView("tidemill_changes")
        run_in_transaction(spark, statement, transaction, metadata)

    def _changes(self, rows: "DataFrame") -> "DataFrame":
        """Return one change per key (SCD 1) or per key and sequence (SCD 2), with `_deleted`.

        Two changes with the same key and sequence have no order: a delete wins, then the row whose JSON
        text is the greatest, so that a repeat of the batch decides the same way.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        deletes = F.coalesce(F.expr(f"({self.apply_as_deletes or 'false'})"), F.lit(False))
        needed = [*self.keys, self.sequence_by]
        unusable = F.lit(False)
        for column in needed:
            unusable = unusable | F.col(quoted(column)).isNull()
        refused = F.raise_error(F.lit(f"{NULL_KEY_MARK}:{', '.join(needed)}")).cast("boolean")
        rows = rows.where(F.when(unusable, refused).otherwise(F.lit(True)))
        marked = rows.withColumn(DELETED, deletes).drop(*self.except_columns)
        group = self.keys if self.scd_type == 1 else needed
        newest = Window.partitionBy(*map(quoted, group)).orderBy(
            F.col(quoted(self.sequence_by)).desc(), F.col(DELETED).desc(), F.to_json(F.struct("*")).desc()
        )
        return marked.withColumn("_rank", F.row_number().over(newest)).where("_rank = 1").drop("_rank")

    def _merge_current(self, table: "Path") -> str:
        sequence = quoted(self.sequence_by)
        return (
            f"MERGE INTO delta.{quoted(str(table))} t USING tidemill_changes s ON {_same(self.keys)} "
            f"WHEN MATCHED AND s.{sequence} > t.{sequence} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def _versions(self, changes: "DataFrame", history: "DataFrame") -> "DataFrame":
        """Return every version of every key that changes, with its validity recomputed.

        A version starts at its own `valid_by` and ends where the next version of the key, a delete
        included, starts.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        start = F.col(quoted(self.valid_by or self.sequence_by))
        touched = history.join(
            changes.select(*map(quoted, self.keys)).distinct(), on=list(self.keys), how="left_semi"
        )
        known = changes.select(*map(quoted, [*self.keys, self.sequence_by]))
        # A change that the table has already (the same key and sequence) is the same change, sent again.
        new = changes.join(history.select(*map(quoted, known.columns)), on=known.columns, how="left_anti")
        following = Window.partitionBy(*map(quoted, self.keys)).orderBy(quoted(self.sequence_by))
        return (
            touched.drop(START_AT, END_AT)
            .unionByName(new, allowMissingColumns=True)
            .withColumn(START_AT, start)
            .withColumn(END_AT, F.lead(start).over(following))
        )

    def _merge_versions(self, table: "Path") -> str:
        return (
            f"MERGE INTO delta.{quoted(str(table))} t USING tidemill_changes s "
            f"ON {_same([*self.keys, self.sequence_by])} "
            f"WHEN MATCHED AND NOT (s.{END_AT} <=> t.{END_AT}) THEN UPDATE SET t.{END_AT} = s.{END_AT} "
            "WHEN NOT MATCHED THEN INSERT *"
        )


NULL_KEY_MARK = "TIDEMILL_MERGE_NULL_KEY"


def _same(columns: Sequence[str]) -> str:
    """Return a condition of MERGE: table and changes agree on these columns."""
    return " AND ".join(f"t.{quoted(column)} = s.{quoted(column)}" for column in columns)

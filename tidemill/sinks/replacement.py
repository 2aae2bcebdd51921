"""Some rows of a merge table replaced by others, in one commit whose change data feed has only what differs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemill.definitions.columns import BATCH, DELETED
from tidemill.sinks import changes as merging
from tidemill.text.names import sql_identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_NEW, _OLD = "__tidemill_new", "__tidemill_old"
# Types that Spark cannot compare.
_INCOMPARABLE = ("map<", "variant")


def comparable(rows: "DataFrame") -> "DataFrame":
    """Return rows without `_batch`, and with columns of types that Spark cannot compare as JSON."""
    from pyspark.sql import functions as F

    times = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
    return rows.select(
        *(
            F.to_json(F.struct(sql_identifier(field.name)), times).alias(field.name)
            if any(name in field.dataType.simpleString() for name in _INCOMPARABLE)
            else F.col(sql_identifier(field.name))
            for field in rows.schema.fields
            if field.name != BATCH
        )
    )


def replacement(rows: "DataFrame", current: "DataFrame", identity: Sequence[str]) -> "DataFrame":
    """Return the source of a MERGE that replaces the current rows: what to do about each row that differs.

    A row that becomes a tombstone is deleted, and the tombstone inserted (see `changes.py`).
    """
    from pyspark.sql import functions as F

    columns = list(map(sql_identifier, identity))
    content = comparable(rows)
    names = list(map(sql_identifier, content.columns))
    new = content.select(*columns, F.struct(*names).alias(_NEW)).join(rows, on=list(identity))
    old = comparable(current).select(*columns, F.struct(*names).alias(_OLD))
    is_new, is_old = F.col(_OLD).isNull(), F.col(_NEW).isNull()
    actions = (
        F.when(is_old, F.array(F.lit("delete")))
        .when(is_new, F.array(F.lit("insert")))
        .when(F.col(_NEW) == F.col(_OLD), F.array().cast("array<string>"))
        .when(F.col(_NEW)[DELETED] == F.col(_OLD)[DELETED], F.array(F.lit("update")))
        .otherwise(F.array(F.lit("delete"), F.lit("insert")))
    )
    joined = new.join(old, on=list(identity), how="full").withColumn(merging.ACTION, F.explode(actions))
    matching = F.col(merging.ACTION).isin("update", "delete") | is_new
    return merging.matching(joined, identity, matching).drop(_NEW, _OLD)

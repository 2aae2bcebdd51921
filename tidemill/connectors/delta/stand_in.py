"""The table of a stream that has never run, as its readers will see it: columns without rows.

A query of it can be planned, so that what Spark refuses is known before the first run. It is never started.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tidemill.definitions.columns import CHANGE_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tidemill.definitions.source import StreamTable

NOT_RUN_MARK = "TIDEMILL_TABLE_NOT_WRITTEN"
"""Marks the error of a function that reads rows of a table that does not exist yet."""

_CHANGE_TYPES = ("string", "long", "timestamp")
# Spark looks for no files where a path is a pattern, and takes the columns of a file source as they are declared.
_NO_FILES = "file:///nonexistent/*"


def stand_in(source: "StreamTable", columns: "StructType", spark: "SparkSession", name: str) -> "DataFrame":
    """Return the DataFrame of a table that does not exist yet.

    Args:
        source: How the table is read.
        columns: The columns that the table will have.
        name: The name of the source in the checkpoint.
    """
    from pyspark.sql.types import StructType

    if source.streaming:
        schema = StructType(list(columns.fields))
        if source.reads_changes:
            for column, kind in zip(CHANGE_COLUMNS, _CHANGE_TYPES, strict=True):
                schema.add(column, kind)
        return spark.readStream.name(name).schema(schema).parquet(_NO_FILES)
    # A batch refuses a pattern without files. Spark would leave out joins with rows that it knows to be none.
    return spark.range(1).mapInArrow(_reading(str(source.stream)), columns)


def _reading(stream: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    message = f"{NOT_RUN_MARK}:{stream}"

    def rows(_batches: Iterator[Any]) -> Iterator[Any]:
        raise LookupError(message)

    return rows

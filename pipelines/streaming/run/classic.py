"""The one module that uses internals of classic Spark; on Spark Connect each has another way."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EXPRESSION_ID = re.compile(r"#\d+L?")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ANALYZED = re.compile(r"== Analyzed Logical Plan ==\n(.*?)\n== Optimized Logical Plan ==", re.DOTALL)


def is_classic(spark: "SparkSession") -> bool:
    """Return whether the session has a JVM of its own and is not behind Spark Connect."""
    return hasattr(spark, "_jsparkSession")


def jvm_pid(spark: "SparkSession") -> int | None:
    """Return the process id of the session's own JVM; None on Spark Connect."""
    if not is_classic(spark):
        return None
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - there is no public way to the JVM's process id
    return int(jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]


def use_scheduler_pool(spark: "SparkSession", pool: str) -> None:
    """Put the jobs of this thread into a pool of their own, so that streams share the cores fairly."""
    if is_classic(spark):
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)


def plan_text(rows: "DataFrame", locations: dict[str, str]) -> str:
    """Return the analyzed plan, the same in every process.

    Ids of expressions and nodes are removed, and locations are replaced.

    Args:
        rows: Any DataFrame, streaming or not.
        locations: What to write instead of each location.
    """
    if is_classic(rows.sparkSession):
        text = rows._jdf.queryExecution().analyzed().toString()  # noqa: SLF001 - semanticHash() is not stable
    else:
        explained = rows._explain_string(extended=True)  # type: ignore[operator]  # noqa: SLF001 - the only text there
        analyzed = _ANALYZED.search(explained)
        text = analyzed[1] if analyzed else explained
    for location, word in locations.items():
        text = text.replace(location, word)
    return _UUID.sub("", _EXPRESSION_ID.sub("", text))

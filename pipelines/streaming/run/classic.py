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


def release_checkpoint(rows: "DataFrame") -> None:
    """Free the blocks of a local checkpoint; Spark Connect frees them when the DataFrame is collected."""
    if is_classic(rows.sparkSession):
        rows._jdf.queryExecution().analyzed().rdd().unpersist(False)  # noqa: SLF001 - no public way


def check_supported(rows: "DataFrame", output_mode: str) -> None:
    """Raise what the start of a query would raise about its plan; on Spark Connect only the start does.

    A start comes after the tables were made ready, and a refusal must leave them as they are.

    Args:
        rows: A streaming DataFrame.
        output_mode: The query's output mode.
    """
    spark = rows.sparkSession
    if is_classic(spark):
        sql = spark.sparkContext._jvm.org.apache.spark.sql  # type: ignore[union-attr]  # noqa: SLF001 - no public way
        mode = getattr(sql.streaming.OutputMode, output_mode.capitalize())()
        plan = rows._jdf.queryExecution().analyzed()  # noqa: SLF001
        sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)


def explained(rows: "DataFrame") -> str:
    """Return the extended explain string of a streaming DataFrame; an empty one where Spark cannot explain it.

    Its physical plan is the one that a query would run, with Spark's own decisions about state.
    """
    spark = rows.sparkSession
    limit = "spark.sql.debug.maxToStringFields"  # longer lists of columns and conditions would be cut off
    before = spark.conf.get(limit)
    spark.conf.set(limit, "10000")
    try:
        if is_classic(spark):
            python_utils = spark.sparkContext._jvm.PythonSQLUtils  # type: ignore[union-attr]  # noqa: SLF001
            return str(python_utils.explainString(rows._jdf.queryExecution(), "extended"))  # noqa: SLF001
        return str(rows._explain_string(extended=True))  # type: ignore[operator]  # noqa: SLF001
    except Exception:  # noqa: BLE001 - the start of the query will report what is wrong with the plan
        return ""
    finally:
        spark.conf.set(limit, str(before))


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

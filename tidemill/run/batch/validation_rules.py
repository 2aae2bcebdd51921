"""How a feed distinguishes records that pass from refused ones, as plain data that a commit can carry.

The main table of a feed may commit a batch before the quarantine does. After a kill between the two, the refused
records are found again by the schema and the rules that the table's rows passed, whatever the code is by then.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidemill.connectors.formats.recorded import format_of, recorded
from tidemill.plans.plan_tree import Node, has_subquery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidemill.connectors.feed import Feed

ValidationRules = Mapping[str, Any]
"""The format and the rules of a feed, and the confs that change what they mean, as JSON."""

# In the plan of a query, Spark takes the time of a batch for these functions, also when it repeats the batch.
_TIME_OF_BATCH = re.compile(r"\b(current_timestamp|current_date|localtimestamp)\(")
# These it evaluates in each attempt: `now()`, `current_time()`, and special strings such as TIMESTAMP'now'.
_TIME_OF_ATTEMPT = re.compile(r"\b(now|current_time|today|tomorrow|yesterday)\b", re.IGNORECASE)
# No secrets are among them, as there may be in `spark.sql.catalog`.
_CONFS = re.compile(
    r"spark\.sql\.(session\.(timeZone|collation\..+)|(ansi|csv|decimalOperations|function|json|legacy|parser|variant)"
    r"\..+|caseSensitive|mapKeyDedupPolicy|readSideCharPadding|timestampType|variable\.substitute)"
)


def rules_of(feed: "Feed", spark: "SparkSession") -> ValidationRules:
    """Return what the validation of a feed's records depends on.

    Args:
        spark: The session that validates them.
    """
    return {
        **recorded(feed.format),
        "rules": dict(feed.rules),
        "confs": _confs(spark),
    }


def with_rules(feed: "Feed", validation: ValidationRules) -> "Feed":
    """Return a feed with the format and the rules of a validation."""
    return replace(feed, format=format_of(validation), rules=validation["rules"])


@contextmanager
def validation_confs(spark: "SparkSession", validation: ValidationRules) -> Iterator[None]:
    """Give a session the confs of a validation, and then those that it had."""
    before = _confs(spark)
    _change(spark, before, validation["confs"])
    try:
        yield
    finally:
        _change(spark, validation["confs"], before)


def _confs(spark: "SparkSession") -> dict[str, str]:
    return {name: value for name, value in sorted(spark.conf.getAll.items()) if _CONFS.fullmatch(name)}


def _change(spark: "SparkSession", before: Mapping[str, str], now: Mapping[str, str]) -> None:
    for name in before.keys() - now.keys():
        spark.conf.unset(name)
    for name, value in now.items():
        if before.get(name) != value:
            spark.conf.set(name, value)


def uses_time_of_batch(plan: str) -> bool:
    """Return whether a plan uses the time of its batch, which only the plan of the query knows.

    Args:
        plan: The analyzed plan, where other names of these functions have been replaced.
    """
    return _TIME_OF_BATCH.search(plan) is not None


def is_repeatable(feed: "Feed", records: "DataFrame", plan: Node | None) -> bool:
    """Return whether the rules refuse the same records each time that they are evaluated, also after a kill.

    Spark answers: it takes no nondeterministic expression as the argument of an aggregate. What a subquery reads may
    have changed when a batch is repeated.

    Args:
        records: Its parsed records.
        plan: Their analyzed plan; None where it cannot be read.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    rules = list(feed.rules.values())
    if plan is None or has_subquery(plan) or any(map(_TIME_OF_ATTEMPT.search, rules)):
        return False
    try:
        _ = records.agg(F.count(F.lit(1)), *(F.count(F.expr(rule)) for rule in rules)).schema
    except AnalysisException:
        return False
    return True

"""Rules as Spark evaluates them: which rows violate a condition, how many, and which are kept."""

from typing import TYPE_CHECKING

from tidemill.connectors.connector import OWN_OBSERVATION
from tidemill.definitions.columns import REFUSED_BY
from tidemill.definitions.expectations import FAIL_MARK
from tidemill.text.names import sql_identifier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

    from tidemill.definitions.expectations import Expect

OBSERVATION = f"{OWN_OBSERVATION}expectations"
_GUARD_COLUMNS = 8
IS_REFUSED = f"size({REFUSED_BY}) > 0"
"""The condition that a rule sends a row to quarantine."""
_LEAST_HASH = -(2**31)


def violated(condition: str, guard: str) -> str:
    """Return a condition in SQL that is true where a condition is false or NULL, or raises an error.

    Spark has no general `try`: `try_to_binary` evaluates its input in one, and an error becomes NULL. It does not
    catch the error of an expression that two conditions share, because Spark evaluates that one earlier; the
    branch of a CASE is never evaluated early.

    Args:
        guard: A condition that is always true and that Spark cannot simplify: see `guard`.
    """
    # NOT keeps Spark's check that the condition is boolean; a cast to a string takes every type.
    tried = f"try_to_binary(CASE WHEN {guard} THEN CAST(NOT ({condition}) AS STRING) END, 'utf-8')"
    return f"NOT coalesce({tried} = X'{b'false'.hex()}', false)"


def names_of_violated(rules: "Mapping[str, str]", guard: str) -> str:
    """Return the branch of a CASE in SQL that has the names of the violated conditions, where there are any.

    Most rows violate nothing, and one condition that all rules make costs less than one per rule.

    Args:
        rules: The conditions by name.
        guard: As `violated` takes it.
    """
    together = " AND ".join(f"({condition})" for condition in rules.values())
    names = ", ".join(
        f"CASE WHEN {violated(condition, guard)} THEN '{rule}' END" for rule, condition in rules.items()
    )
    return f"WHEN {violated(together, guard)} THEN array_compact(array({names}))"


def guard(rows: "DataFrame") -> str:
    """Return a condition over some columns that is always true, for `violated`.

    Several columns, because Spark simplifies the condition where all of them are literals.
    """
    terms = [_hashable(field) for field in rows.schema.fields[:_GUARD_COLUMNS]]
    return f"hash({', '.join(terms)}) >= {_LEAST_HASH}"


def _hashable(field: "StructField") -> str:
    """Return a cheap value of a column of any type: maps and variants have no hash."""
    from pyspark.sql.types import ArrayType, AtomicType, BinaryType, MapType, StringType, VariantType

    column = sql_identifier(field.name)
    if isinstance(field.dataType, StringType | BinaryType):
        return f"octet_length({column})"
    if isinstance(field.dataType, ArrayType | MapType):
        return f"size({column})"
    if isinstance(field.dataType, AtomicType) and not isinstance(field.dataType, VariantType):
        return column
    return f"{column} IS NULL"


def counts(rows: "DataFrame", rules: "Sequence[Expect]") -> "list[Column]":
    """Return aggregates over rows: `rows`, `dropped`, and `violated_<name>` for each rule.

    A dropped row is counted under every rule that it violates, and once as `dropped`.
    """
    from pyspark.sql import functions as F

    always = guard(rows)
    return [
        F.expr("count(1) AS `rows`"),
        F.expr(f"sum(CAST({_dropped(rules, always)} AS BIGINT)) AS dropped"),
        *(
            F.expr(
                f"sum(CAST({violated(rule.condition, always)} AS BIGINT)) AS {sql_identifier(f'violated_{rule.name}')}"
            )
            for rule in rules
        ),
    ]


def kept(rows: "DataFrame", rules: "Sequence[Expect]") -> "DataFrame":
    """Return the rows that no rule drops; a row that violates a `fail` rule stops the batch."""
    from pyspark.sql import functions as F

    if not rules:
        return rows
    always = guard(rows)
    for rule in rules:
        if rule.on_violation == "fail":
            failure = F.raise_error(F.lit(f"{FAIL_MARK}:{rule.name}:{rule.condition}")).cast("boolean")
            rows = rows.where(
                F.when(F.expr(violated(rule.condition, always)), failure).otherwise(F.lit(True))
            )
    if any(rule.on_violation == "drop" for rule in rules):
        rows = rows.where(f"NOT ({_dropped(rules, always)})")
    return rows


def observed(rows: "DataFrame", rules: "Sequence[Expect]") -> "DataFrame":
    """Return the rows of a streaming query with the rules applied; the counts come with its progress."""
    if not rules:
        return rows
    rows = rows.observe(OBSERVATION, *counts(rows, rules))
    return kept(with_refusals(rows, rules) if any(rule.quarantines for rule in rules) else rows, rules)


def with_refusals(rows: "DataFrame", rules: "Sequence[Expect]") -> "DataFrame":
    """Return rows with the names of the rules that send each to quarantine."""
    from pyspark.sql import functions as F

    quarantining = {rule.name: rule.condition for rule in rules if rule.quarantines}
    always, none = guard(rows), "CAST(array() AS ARRAY<STRING>)"
    names = names_of_violated(quarantining, always) if quarantining else ""
    cases = f"WHEN {_dropped(rules, always)} THEN {none} {names}"
    return rows.withColumn(REFUSED_BY, F.expr(f"CASE {cases} ELSE {none} END"))


def refused_count() -> "Column":
    """Return an aggregate over rows with their refusals: `rows_out_quarantined`."""
    from pyspark.sql import functions as F

    return F.expr(f"count(CASE WHEN {IS_REFUSED} THEN true END) AS rows_out_quarantined")


def passing(rows: "DataFrame") -> "DataFrame":
    """Return the rows with their refusals that no rule sends to quarantine."""
    return rows.where(f"NOT ({IS_REFUSED})").drop(REFUSED_BY)


def _dropped(rules: "Sequence[Expect]", always: str) -> str:
    """Return the condition in SQL that a rule drops a row."""
    terms = [f"({violated(rule.condition, always)})" for rule in rules if rule.on_violation == "drop"]
    return " OR ".join(["false", *terms])

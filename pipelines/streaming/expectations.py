"""Rules on the rows of a stream's output.

A rule is an SQL condition that every row should meet; a rule that evaluates to NULL is violated.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from pipelines.streaming.errors import DefinitionError
from pipelines.streaming.names import valid_rule_name
from pipelines.streaming.sql import valid_condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

OnViolation = Literal["warn", "drop", "fail"]
OBSERVATION = "tidemill_expectations"
FAIL_MARK = "TIDEMILL_EXPECTATION_FAILED"


@dataclass(frozen=True, slots=True)
class Expect:
    """A rule on the output of a stream.

    Attributes:
        name: Its name, also the name of the asset check.
        condition: SQL over the output's columns.
        on_violation: `warn` counts the row and keeps it, `drop` counts it and leaves it out, `fail` stops
            the batch before anything is written.
    """

    name: str
    condition: str
    on_violation: OnViolation = "warn"

    def __post_init__(self) -> None:
        valid_rule_name(self.name, what="expectation")
        valid_condition(self.condition, what=f"expectation {self.name!r}: condition")
        if self.on_violation not in get_args(OnViolation):
            raise DefinitionError(
                f"expectation {self.name!r}: on_violation is {self.on_violation!r}; "
                f"use one of {', '.join(get_args(OnViolation))}."
            )


def violated(condition: str) -> "Column":
    """Return a column that is true where the SQL condition is false or NULL."""
    from pyspark.sql import functions as F

    return ~F.coalesce(F.expr(f"({condition})"), F.lit(False))


def counts(rules: "Sequence[Expect]") -> "list[Column]":
    """Return aggregates that count violations: `dropped`, and `violated_<name>` for each rule.

    A dropped row is counted under every rule that it violates, and once as `dropped`.
    """
    from pyspark.sql import functions as F

    return [F.sum(_dropped(rules).cast("long")).alias("dropped")] + [
        F.sum(violated(rule.condition).cast("long")).alias(f"violated_{rule.name}") for rule in rules
    ]


def kept(rows: "DataFrame", rules: "Sequence[Expect]") -> "DataFrame":
    """Return the rows that no rule drops; a row that violates a `fail` rule stops the batch."""
    from pyspark.sql import functions as F

    for rule in rules:
        if rule.on_violation == "fail":
            failure = F.raise_error(F.lit(f"{FAIL_MARK}:{rule.name}:{rule.condition}")).cast("boolean")
            rows = rows.where(F.when(violated(rule.condition), failure).otherwise(F.lit(True)))
    if any(rule.on_violation == "drop" for rule in rules):
        rows = rows.where(~_dropped(rules))
    return rows


def observed(rows: "DataFrame", rules: "Sequence[Expect]") -> "DataFrame":
    """Return the rows of a streaming query with the rules applied; the counts come with its progress."""
    return kept(rows.observe(OBSERVATION, *counts(rules)), rules) if rules else rows


def _dropped(rules: "Sequence[Expect]") -> "Column":
    from pyspark.sql import functions as F

    dropped = F.lit(False)
    for rule in rules:
        if rule.on_violation == "drop":
            dropped = dropped | violated(rule.condition)
    return dropped

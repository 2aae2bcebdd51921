"""Rules on the rows of a stream's output.

A rule is an SQL condition that every row should meet. A rule that evaluates to NULL, or that raises an error (a
text that is no number, a division by zero), is violated: one row cannot stop a stream.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from tidemill.errors import DefinitionError
from tidemill.text.names import valid_choice, valid_rule_name
from tidemill.text.sql_parsing import valid_condition

OnViolation = Literal["warn", "drop", "quarantine", "fail"]
FAIL_MARK = "TIDEMILL_EXPECTATION_FAILED"
COLUMNS_CHANGED = "columns_changed"
"""The reason of a row in quarantine that no longer fits the columns of the output."""


@dataclass(frozen=True, slots=True)
class Expect:
    """A rule on the output of a stream.

    Attributes:
        name: Its name, also the name of the asset check.
        condition: SQL over the output's columns. A row for which it is NULL, or raises an error, violates it.
        on_violation: `warn` counts the row and keeps it, `drop` counts it and leaves it out, `quarantine` counts it
            and writes it to `<stream>__quarantine` instead of the sinks, `fail` stops the batch before a table gets a
            row. A row that a `drop` rule leaves out does not go to quarantine.
    """

    name: str
    condition: str
    on_violation: OnViolation = "warn"

    def __post_init__(self) -> None:
        valid_rule_name(self.name, field="expectation")
        valid_condition(self.condition, field=f"expectation {self.name!r}: condition")
        allowed = get_args(OnViolation)
        valid_choice(self.on_violation, allowed, field=f"expectation {self.name!r}: on_violation")
        if self.quarantines and self.name == COLUMNS_CHANGED:
            raise DefinitionError(
                f"expectation {self.name!r} has the name of a reason in the quarantine; choose another.",
                code="name-reserved",
            )

    @property
    def quarantines(self) -> bool:
        """Whether a row that violates it goes to quarantine."""
        return self.on_violation == "quarantine"

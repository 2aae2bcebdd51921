"""The result of a check: plain values that are printed, plotted and tested."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidemill.definitions.bounds import Severity

Status = Literal["pass", "warn", "error", "unknown"]
Number = int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check of one stream.

    Attributes:
        name: The check's name.
        passed: Whether the stream is as it should be.
        severity: How serious a failure is.
        summary: What the check observed, and what to do about it.
        numbers: What it measured, under stable names; None where a value is unknown.
        evaluated: Whether the check could be evaluated; where it could not, `passed` is false.
    """

    name: str
    passed: bool
    severity: Severity = "error"
    summary: str = ""
    numbers: Mapping[str, Number] = field(default_factory=dict)
    evaluated: bool = True

    @property
    def status(self) -> Status:
        """`pass`, `warn`, `error`, or `unknown` where the check could not be evaluated."""
        if self.passed:
            return "pass"
        return self.severity if self.evaluated else "unknown"

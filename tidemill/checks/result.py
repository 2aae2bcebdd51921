"""The result of a check, plain values that are printed, plotted and tested; and counts and times in results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from tidemill.definitions.bounds import Severity

if TYPE_CHECKING:
    from tidemill.records.batch import BatchRecord


def total(lines: "tuple[BatchRecord, ...]", count: str) -> int | None:
    """Return a count over lines of the ledger; None where no line has it."""
    known = [value for line in lines if (value := getattr(line, count)) is not None]
    return sum(known) if known else None


def time_of(milliseconds: int) -> str:
    """Return a time for people, in UTC to the second: `2026-01-31 12:00:00`."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


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


def unevaluated(name: str, summary: str) -> CheckResult:
    """Return the result of a check that could not be evaluated."""
    return CheckResult(name=name, passed=False, severity="warn", summary=summary, evaluated=False)

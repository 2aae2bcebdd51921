"""Findings: each has a stable code, its meaning and a fix."""

from dataclasses import dataclass
from typing import Literal

from tidemill.checkpoint.format.errors import CheckpointFormatError

Severity = Literal["error", "warning", "info"]
Level = Literal["quick", "full"]

_ORDER = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        code: A stable name in kebab case.
        severity: `error`: the next start fails, or rows are lost or duplicated. `warning`: the next start works,
            but something is not as Spark leaves it. `info`: worth knowing.
        where: The file or folder, relative to the checkpoint; empty for the checkpoint as a whole.
        what: The fact and its consequence.
        fix: The command or edit that fixes it; empty if no action is needed.
    """

    code: str
    severity: Severity
    where: str
    what: str
    fix: str


class Findings:
    """The findings of one verification."""

    def __init__(self) -> None:
        self._findings: dict[Finding, None] = {}

    def add(self, severity: Severity, code: str, where: str, what: str, fix: str = "") -> None:
        """Add a finding; duplicates are kept once."""
        self._findings[Finding(code, severity, where, what, fix)] = None

    def add_problem(
        self,
        problem: CheckpointFormatError,
        *,
        severity: Severity = "error",
        consequence: str = "",
        fix: str = "",
    ) -> None:
        """Add a damaged file with the consequence for the next start."""
        what = f"{problem.what} {consequence}".strip()
        self.add(severity, problem.code, problem.where, what, problem.fix or fix)

    def all(self) -> tuple[Finding, ...]:
        """Return the findings: errors first, those of one severity in the order of their detection."""
        return tuple(sorted(self._findings, key=lambda finding: _ORDER[finding.severity]))

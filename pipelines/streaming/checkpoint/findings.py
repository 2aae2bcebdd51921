"""What `verify` found: each finding with a stable code, what it means and what fixes it."""

from dataclasses import dataclass
from typing import Literal

from pipelines.streaming.checkpoint.errors import CheckpointFormatError

Severity = Literal["error", "warning", "info"]
Level = Literal["quick", "full"]

_ORDER = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        code: A stable name in kebab case.
        severity: `error`: the next start fails, or rows are lost or doubled. `warning`: it will work, but
            something is not as Spark leaves it. `info`: worth knowing.
        where: The file or folder, relative to the checkpoint; empty for the checkpoint as a whole.
        what: What is there and what it means.
        fix: What to do; empty when there is nothing to do.
    """

    code: str
    severity: Severity
    where: str
    what: str
    fix: str


class Findings:
    """Collects findings while a checkpoint is looked at."""

    def __init__(self) -> None:
        self._found: dict[Finding, None] = {}

    def add(self, severity: Severity, code: str, where: str, what: str, fix: str = "") -> None:
        """Adds a finding; the same one is kept once."""
        self._found[Finding(code, severity, where, what, fix)] = None

    def problem(
        self, problem: CheckpointFormatError, *, severity: Severity = "error", means: str = "", fix: str = ""
    ) -> None:
        """Adds a file that is not as it should be, with what that means for the next start."""
        what = f"{problem.what} {means}".strip()
        self.add(severity, problem.code, problem.where, what, problem.fix or fix)

    def all(self) -> tuple[Finding, ...]:
        """What was found: errors first, each severity in the order in which it was found."""
        return tuple(sorted(self._found, key=lambda finding: _ORDER[finding.severity]))

"""The checks of a stream's expectations: one per rule, with its name."""

from typing import TYPE_CHECKING

from tidemill.checks.result import CheckResult
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checks.context import CheckContext
    from tidemill.definitions.expectations import Expect


def expectation(context: "CheckContext", rule: "Expect") -> CheckResult:
    """Return whether rows of the newest run violate a rule, or whether the rule has stopped a run."""
    violations = sum(line.violations.get(rule.name, 0) for line in context.lines)
    reason = _stopped(context, rule)
    if reason is not None:
        summary = reason
    elif not context.lines:
        summary = "No row has been checked yet."
    elif violations:
        summary = (
            f"{pluralize(violations, 'violation')} of {rule.condition} in the newest run ({consequence(rule)}). "
            "Correct the input or the function."
        )
    else:
        summary = "No violation in the newest run."
    return CheckResult(
        name=rule.name,
        passed=reason is None and violations == 0,
        severity="error" if rule.on_violation == "fail" else "warn",
        summary=summary,
        numbers={"violations": violations, "condition": rule.condition},
    )


def consequence(rule: "Expect") -> str:
    """Return what happens to a row that violates a rule."""
    return {
        "warn": "such rows are kept",
        "drop": "such rows are left out",
        "fail": "such a row stops the run",
    }[rule.on_violation]


def _stopped(context: "CheckContext", rule: "Expect") -> str | None:
    """Return the error of the run that a rule stopped; its row never reached the table, so nothing was counted."""
    if context.result is not None and context.result.error is not None:
        return str(context.result.error) if context.result.error.rule == rule.name else None
    last_run = None if context.snapshot.manifest is None else context.snapshot.manifest.last_run
    return last_run.error if last_run is not None and last_run.rule == rule.name else None

"""The checks of a stream as Dagster's asset checks: their specs, and their results.

What is checked, and how, is in `tidemill.checks`: the run, a schedule and `tidemill check` evaluate the
same functions.
"""

from typing import TYPE_CHECKING

from dagster import AssetCheckResult, AssetCheckSeverity, AssetCheckSpec, AssetKey, MetadataValue

from tidemill.checks.evaluation import check_names
from tidemill.checks.rows import consequence

if TYPE_CHECKING:
    from tidemill.checks.result import CheckResult
    from tidemill.definitions.stream import Stream

DESCRIPTIONS = {
    "checkpoint_sound": "The next run can start from the checkpoint without losing or repeating data.",
    "exactly_once": "Offsets, ledger and the logs of the tables agree about every batch since the last check.",
    "watermark": "The watermark never goes back, is not ahead of the clock or the events, and keeps up.",
    "late_rows": "The share of late input is under the declared bound.",
    "state_bounded": "The state is under its declared bounds and belongs to this checkpoint.",
    "backlog": "Unread data becomes less, and is read before the retention of its source removes it.",
    "freshness": "The newest event in the table is as young as declared.",
    "quarantine": "The share of refused records is under the declared bound.",
}


def check_specs(stream: "Stream", key: AssetKey) -> list[AssetCheckSpec]:
    """Return the checks of a stream: those that it always has, and one per expectation.

    An expectation that stops a run blocks what is downstream, in its run and, through automation conditions, in others.
    """
    rules = {rule.name: rule for rule in stream.expect}
    return [
        AssetCheckSpec(
            name,
            asset=key,
            description=DESCRIPTIONS.get(name) or f"{rules[name].condition} ({consequence(rules[name])})",
            blocking=name in rules and rules[name].on_violation == "fail",
        )
        for name in check_names(stream)
    ]


def as_dagster(check: "CheckResult", key: AssetKey) -> AssetCheckResult:
    """Return a result as Dagster records it; each number becomes a series that the UI plots."""
    numbers = {name: number for name, number in check.numbers.items() if number is not None}
    return AssetCheckResult(
        passed=check.passed,
        asset_key=key,
        check_name=check.name,
        severity=AssetCheckSeverity.ERROR if check.severity == "error" else AssetCheckSeverity.WARN,
        description=check.summary,
        metadata={
            f"tidemill/{name}": MetadataValue.path(str(number)) if name == "checkpoint" else number
            for name, number in numbers.items()
        },
    )

"""The checks of a stream as Dagster's asset checks, and what an op yields about a stream.

What is checked, and how, is in `tidemill.checks`: the run, a schedule and `tidemill check` evaluate the
same functions.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dagster import (
    AssetCheckEvaluation,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetKey,
    AssetMaterialization,
    MaterializeResult,
    MetadataValue,
)

from tidemill.checks.evaluation import check_names
from tidemill.checks.rows import consequence

if TYPE_CHECKING:
    from tidemill.checks.result import CheckResult
    from tidemill.definitions.stream import Stream
    from tidemill.target.target import Target

Event = MaterializeResult[None] | AssetCheckResult | AssetMaterialization | AssetCheckEvaluation
_DATA_VERSION = "dagster/data_version"


def without_output(event: Event) -> Iterator[Event]:
    """Yield what an op may report about an asset that it does not own."""
    match event:
        case MaterializeResult():
            assert event.asset_key is not None  # noqa: S101 - `_report` sets it
            version = {} if event.data_version is None else {_DATA_VERSION: event.data_version.value}
            yield AssetMaterialization(event.asset_key, metadata=event.metadata, tags=version)
            for check in event.check_results or ():
                yield from without_output(check)
        case AssetCheckResult():
            assert event.asset_key is not None  # noqa: S101 - likewise
            assert event.check_name is not None  # noqa: S101 - likewise
            yield AssetCheckEvaluation(
                asset_key=event.asset_key,
                check_name=event.check_name,
                passed=event.passed,
                metadata=event.metadata,
                severity=event.severity,
                description=event.description,
            )
        case _:
            yield event


DESCRIPTIONS = {
    "checkpoint_sound": "The next run can start from the checkpoint without losing or repeating data.",
    "exactly_once": "Offsets, ledger and the logs of the tables agree about every batch since the last check.",
    "watermark": "The watermark never goes back, is not ahead of the clock or the events, and keeps up.",
    "late_rows": "The share of late input is under the declared bound.",
    "state_bounded": "The state is under its declared bounds and belongs to this checkpoint.",
    "backlog": "Unread data becomes less, and is read before the retention of its source removes it.",
    "freshness": "The newest event in the table is as young as declared.",
    "quarantine": "The share of refused records is under the declared bound.",
    "in_catalog": "The catalog has the tables of the stream at their locations, as a run last saw it.",
}


def check_specs(stream: "Stream", key: AssetKey, target: "Target | None" = None) -> list[AssetCheckSpec]:
    """Return the checks of a stream: those that it always has, and one per expectation.

    In a target with a catalog there is one of the names of its tables as well.

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
        for name in check_names(stream, target)
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

"""Asset checks of a stream: its rules, its checkpoint and its watermark.

The op that runs the stream evaluates them, so they need no further process and do not read the data again.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dagster import AssetCheckResult, AssetCheckSeverity, AssetCheckSpec, AssetKey, MetadataValue

from pipelines.streaming.checkpoint.verify import verify
from pipelines.streaming.plurals import counted
from pipelines.streaming.records import StreamRecords

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.streaming import Stream
    from pipelines.streaming.checkpoint.verify import Finding
    from pipelines.streaming.expectations import Expect
    from pipelines.streaming.records.lake import Lake
    from pipelines.streaming.run.results import StreamResult

CHECKPOINT_SOUND = "checkpoint_sound"
WATERMARK = "watermark_not_ahead"
EXPECTATION_FAILED = "EXPECTATION_FAILED"  # the error class of a run that a rule with `fail` stopped


def check_specs(stream: "Stream", key: AssetKey) -> list[AssetCheckSpec]:
    """Return the checks of a stream: one per rule, and those that every stream has."""
    specs = [
        AssetCheckSpec(
            rule.name, asset=key, description=f"{rule.condition} ({_consequence(rule)})", blocking=False
        )
        for rule in stream.expect
    ]
    specs.append(
        AssetCheckSpec(
            CHECKPOINT_SOUND,
            asset=key,
            description="The next run can start from the checkpoint without losing data.",
        )
    )
    if has_watermark(stream):
        specs.append(
            AssetCheckSpec(
                WATERMARK,
                asset=key,
                description="The watermark is not in the future. One event with a wrong time can push it "
                "there, and every event of the present is late from then on.",
            )
        )
    return specs


def check_results(
    stream: "Stream", key: AssetKey, result: "StreamResult", lake: "Lake", now: datetime
) -> Iterator[AssetCheckResult]:
    """Yield the results of a stream's checks after a run.

    A busy or skipped stream has none. A failed stream has those of its checkpoint and of the rule that stopped
    it; its other rules were not evaluated.

    Args:
        stream: The stream.
        key: Its asset key.
        result: What the run did to it.
        lake: The lake that has its checkpoint.
        now: The current time, which the watermark is compared with.
    """
    if result.outcome in ("busy", "skipped"):
        return
    for rule in stream.expect:
        if result.outcome in ("updated", "idle") or _stopped_by(rule, result):
            yield _expectation(rule, key, result)
    yield checkpoint_check(key, stream, lake)
    if has_watermark(stream) and result.outcome in ("updated", "idle"):
        yield _watermark(key, result.watermark_ms, now)


def checkpoint_check(key: AssetKey, stream: "Stream", lake: "Lake") -> AssetCheckResult:
    """Return whether the next run can start, as `tidemill checkpoint verify --quick` finds it."""
    try:
        snapshot = StreamRecords(lake, stream.name).snapshot()
        if snapshot.manifest is None:
            return _checkpoint(key, passed=True, description="The stream has never run.")
        checkpoint = snapshot.checkpoint
        if snapshot.query_id is None and not checkpoint.exists():
            return _checkpoint(key, passed=True, description="No checkpoint yet.")
        table = snapshot.main_table
        verdict = verify(checkpoint, level="quick", sink_batch=None if table is None else table.newest_batch)
    except Exception as error:  # noqa: BLE001 - a check must not fail a run that did its work
        return _checkpoint(key, passed=False, description=f"The checkpoint could not be verified: {error}")
    findings = "\n".join(map(_finding_line, verdict.findings))
    return _checkpoint(key, passed=verdict.sound, description=findings or "Sound.", checkpoint=checkpoint)


def _finding_line(finding: "Finding") -> str:
    location = f" {finding.where}" if finding.where else ""
    fix = f" Fix: {finding.fix}" if finding.fix else ""
    return f"{finding.severity} {finding.code}{location}: {finding.what}{fix}"


def _checkpoint(
    key: AssetKey, *, passed: bool, description: str, checkpoint: "Path | None" = None
) -> AssetCheckResult:
    return AssetCheckResult(
        passed=passed,
        asset_key=key,
        check_name=CHECKPOINT_SOUND,
        description=description,
        metadata={} if checkpoint is None else {"tidemill/checkpoint": MetadataValue.path(checkpoint)},
    )


def has_watermark(stream: "Stream") -> bool:
    """Return whether a source of the stream has a watermark."""
    return any(source.watermark is not None for source in stream.sources.values())


def _expectation(rule: "Expect", key: AssetKey, result: "StreamResult") -> AssetCheckResult:
    violations = sum(batch.violations.get(rule.name, 0) for batch in result.batches)
    stopped = _stopped_by(rule, result)
    if stopped:
        description = str(result.error)
    elif result.outcome == "idle":
        description = "No new rows."
    else:
        description = f"{counted(violations, 'violation')} in this run ({_consequence(rule)})."
    return AssetCheckResult(
        passed=not stopped and violations == 0,
        asset_key=key,
        check_name=rule.name,
        severity=AssetCheckSeverity.ERROR if rule.on_violation == "fail" else AssetCheckSeverity.WARN,
        description=description,
        metadata={"tidemill/violations": violations, "tidemill/condition": rule.condition},
    )


def _stopped_by(rule: "Expect", result: "StreamResult") -> bool:
    """Return whether this rule stopped the run; its row never reached the table, so nothing was counted."""
    error = result.error
    return (
        error is not None
        and error.error_class == EXPECTATION_FAILED
        and f"expectation {rule.name!r}" in error.what
    )


def _watermark(key: AssetKey, watermark_ms: int | None, now: datetime) -> AssetCheckResult:
    if watermark_ms is None:
        return AssetCheckResult(
            passed=True, asset_key=key, check_name=WATERMARK, description="No watermark yet."
        )
    watermark = datetime.fromtimestamp(watermark_ms / 1000, UTC)
    return AssetCheckResult(
        passed=watermark <= now,
        asset_key=key,
        check_name=WATERMARK,
        description=f"The watermark is {watermark.isoformat(timespec='seconds')}.",
        metadata={"tidemill/watermark": MetadataValue.timestamp(watermark)},
    )


def _consequence(rule: "Expect") -> str:
    return {
        "warn": "such rows are kept",
        "drop": "such rows are left out",
        "fail": "such a row stops the run",
    }[rule.on_violation]

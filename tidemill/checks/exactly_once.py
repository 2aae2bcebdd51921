"""The check `exactly_once`: the logs account for every batch, and each agrees with the others.

Offsets, ledger and the logs of the sinks are written at different moments by different programs. What all of them
agree on did happen once. The batches since the last check are compared, so a stream with ten thousand batches takes
no longer than one with ten.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemill.checkpoint import CheckpointFormatError, offset_batches
from tidemill.checks.external_sinks import sink_report
from tidemill.checks.ranges import offset_findings
from tidemill.checks.result import CheckResult
from tidemill.checks.table_commits import TableLog, TableReport, sinks_of
from tidemill.records.check_state import Position
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checks.context import CheckContext
    from tidemill.checks.result import Number
    from tidemill.records.batch import BatchRecord

NAME = "exactly_once"
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a comparison of the logs found.

    Attributes:
        findings: What does not agree, a sentence each.
        unknown: Which sinks could not be compared, and why, a sentence each.
        behind: The committed batches that have no line yet, because a run was killed.
        position: Up to where everything agrees; None where nothing was compared.
        numbers: What was counted.
    """

    findings: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    behind: int = 0
    position: Position | None = None
    numbers: "Mapping[str, Number]" = field(default_factory=dict)


def exactly_once(comparison: Comparison) -> CheckResult:
    """Return whether everything that the logs have of the batches since the last check agrees."""
    findings, numbers = comparison.findings, comparison.numbers
    behind = (
        f"The ledger has no line of {pluralize(comparison.behind, 'committed batch')}, because a run was killed. "
        "The next run writes them: tidemill run."
    )
    if findings:
        more = len(findings) - _SHOWN
        lines = [*findings[:_SHOWN], *([f"And {pluralize(more, 'more finding')}."] if more > 0 else [])]
        summary = "\n".join(lines)
    elif comparison.behind:
        summary = behind
    elif not numbers.get("batches_compared"):
        summary = "No batch since the last check."
    else:
        batches = int(numbers.get("batches_compared") or 0)
        summary = f"{pluralize(batches, 'batch')}: offsets, ledger and tables agree."
    return CheckResult(
        name=NAME,
        passed=not findings and not comparison.behind and not comparison.unknown,
        severity="error" if findings else "warn",
        summary="\n".join([summary, *comparison.unknown]),
        evaluated=bool(findings or comparison.behind or not comparison.unknown),
        numbers={"batches_compared": 0, "findings": len(findings), **numbers},
    )


def compare(context: "CheckContext") -> Comparison:
    """Compare the batches since the last check: offsets, ledger, the commits of every table, and the other sinks.

    The caller records the position, where nothing was found.
    """
    snapshot = context.snapshot
    manifest = snapshot.manifest
    if manifest is None or snapshot.query_id is None:
        return Comparison()
    before = None if context.before is None else context.before.position
    if before is not None and not snapshot.has(before):
        before = None
    if before is not None and before.batch > snapshot.last_commit:
        return Comparison(
            findings=(
                (
                    f"The checkpoint ends at batch {snapshot.last_commit}, and batch {before.batch} was committed: an "
                    "older copy was restored. Restore the checkpoint and the tables of the same time."
                ),
            )
        )
    last = min(snapshot.last_commit, manifest.active.ledger_batch)
    behind = snapshot.last_commit - last
    first = _first(context) if before is None else before.batch + 1
    batches = range(first, last + 1)
    lines = snapshot.records.ledger.lines_of(snapshot.generation, batches)
    by_batch, findings = _one_line_each(batches, lines)
    findings += offset_findings(context, by_batch, {} if before is None else before.end_offsets)
    versions: dict[str, int] = {}
    reports: dict[str, TableReport] = {}
    for sink in sinks_of(context.stream):
        known = None if before is None else before.versions.get(sink)
        log = TableLog(context=context, sink=sink, batches=batches, lines=by_batch, known=known)
        reports[sink] = log.report()
        findings += reports[sink].findings
        if (version := reports[sink].version) is not None:
            versions[sink] = version
    external = sink_report(context, by_batch, before)
    findings += external.findings
    end = by_batch[last].end_offsets if last in by_batch else {} if before is None else before.end_offsets
    return Comparison(
        findings=tuple(findings),
        unknown=external.unknown,
        behind=behind,
        position=Position(
            generation=snapshot.generation,
            query_id=snapshot.query_id,
            batch=last,
            versions=versions,
            end_offsets=end,
            sinks=external.batches,
        ),
        numbers={
            "batches_compared": len(batches),
            "rows_read": sum(line.rows_read or 0 for line in by_batch.values()),
            "rows_blank": sum(line.rows_blank or 0 for line in by_batch.values()),
            "rows_quarantined": sum(line.rows_quarantined or 0 for line in by_batch.values()),
            "rows_dropped": sum(line.rows_dropped or 0 for line in by_batch.values()),
            "rows_committed": sum(report.rows for report in reports.values()),
            "commits": sum(report.commits for report in reports.values()),
        },
    )


def newest_position(context: "CheckContext") -> Position:
    """Return the position after everything that is there now."""
    snapshot = context.snapshot
    manifest = snapshot.manifest
    last = (
        snapshot.last_commit if manifest is None else min(snapshot.last_commit, manifest.active.ledger_batch)
    )
    lines = snapshot.records.ledger.lines_of(snapshot.generation, [last])
    versions = {sink: snapshot.records.table(sink).log.versions() for sink in sinks_of(context.stream)}
    return Position(
        generation=snapshot.generation,
        query_id=snapshot.query_id or "",
        batch=last,
        versions={sink: of[-1] for sink, of in versions.items() if of},
        end_offsets=lines[-1].end_offsets if lines else {},
        sinks=sink_report(context, {}, None).batches,
    )


def _first(context: "CheckContext") -> int:
    """Return the oldest batch of the generation whose offsets the checkpoint keeps: Spark keeps a hundred."""
    manifest = context.snapshot.manifest
    own = 0 if manifest is None else manifest.active.first_batch
    try:
        return max(own, min(offset_batches(context.snapshot.checkpoint), default=0))
    except CheckpointFormatError:
        return own


def _one_line_each(
    batches: Sequence[int], lines: "Sequence[BatchRecord]"
) -> "tuple[dict[int, BatchRecord], list[str]]":
    """Return the ledger's line of each batch, and what is wrong with them."""
    by_batch: dict[int, BatchRecord] = {}
    findings = []
    for line in lines:
        if line.batch_id in by_batch:
            findings.append(
                f"The ledger has two lines of batch {line.batch_id}, of the runs {by_batch[line.batch_id].run_id} and "
                f"{line.run_id}: its sums count the batch twice. Remove one of them."
            )
        by_batch[line.batch_id] = line
    missing = [batch for batch in batches if batch not in by_batch]
    if missing:
        numbers = ", ".join(map(str, missing[:_SHOWN])) + (" and more" if len(missing) > _SHOWN else "")
        findings.append(
            f"The ledger has no line of the committed {'batch' if len(missing) == 1 else 'batches'} {numbers}. Restore "
            "its file from a copy."
        )
    return by_batch, findings

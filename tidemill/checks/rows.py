"""The checks of counted rows: `late_rows`, `quarantine`, and one per expectation."""

from collections import Counter
from typing import TYPE_CHECKING

from tidemill.checks.origins import origin_text
from tidemill.checks.result import CheckResult, total
from tidemill.run.batch.quarantine import INPUT, KIND
from tidemill.text.names import QUARANTINE
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checks.context import CheckContext
    from tidemill.definitions.expectations import Expect
    from tidemill.records.batch import BatchRecord


def late_rows(context: "CheckContext") -> CheckResult:
    """Return whether the share of late input in the newest run is under the declared bound."""
    lines = context.lines
    late = [line.late for line in lines if line.late is not None]
    count, read = sum(part.count for part in late), total(lines, "rows_read")
    unit = next((part.unit for part in late if part.count), "rows")
    share = count / read if read else 0.0
    bound = context.bounds.late_share
    passed = bound is None or share <= bound
    noun = f"late {unit.removesuffix('s')}"
    summary = f"{pluralize(count, noun)} of {read or 0:,} read in the newest run."
    if not passed:
        summary += (
            f" The bound is {bound:.4g}. Raise the delay of the watermark, which keeps more state; or find out "
            "why the events arrive late."
        )
    return CheckResult(
        name="late_rows",
        passed=passed,
        severity="warn",
        summary=summary,
        numbers={
            "late": count,
            "late_unit": unit,
            "rows_read": read,
            "late_share": round(share, 6),
            "late_share_bound": bound,
        },
    )


_SAMPLE = 1000
_ENOUGH = 20
_BATCHES = 50


def quarantine(context: "CheckContext") -> CheckResult:
    """Return whether the share of records that the rules of a feed refused is under the declared bound.

    Rows that expectations send to quarantine do not count: each expectation has a check of its own.
    It is that of the newest run, and of the batches before where that one has few records: one bad record that
    arrives alone does not show that a schema has changed.
    """
    lines = _with_enough_records(context)
    read, everything = (total(lines, count) for count in ("rows_read", "rows_quarantined"))
    refused = None if everything is None else everything - (total(lines, "rows_out_quarantined") or 0)
    share = refused / read if read and refused else 0.0
    bound = context.bounds.quarantine_share
    passed = not refused or share < bound
    runs = "run" if lines == context.lines else "runs"
    summary = f"{pluralize(refused or 0, 'record')} of {read or 0:,} went to quarantine in the newest {runs}."
    if not passed:
        summary += (
            f" {_reason(context, lines)}Compare the records with the schema and the rules of the feed, correct one of "
            f"them, and replay the records: tidemill quarantine replay {context.stream.name}."
        )
    return CheckResult(
        name="quarantine",
        passed=passed,
        summary=summary,
        numbers={
            "rows_read": read,
            "rows_quarantined": refused,
            "quarantine_share": round(share, 6),
            "quarantine_share_bound": bound,
        },
    )


def _with_enough_records(context: "CheckContext") -> "tuple[BatchRecord, ...]":
    """Return the lines of the newest run, and of as many batches before as have enough records together."""
    lines = context.lines
    if not lines or (total(lines, "rows_read") or 0) >= _ENOUGH:
        return lines
    first = lines[0].batch_id
    ledger = context.snapshot.records.ledger
    earlier = ledger.lines_of(context.snapshot.generation, range(max(0, first - _BATCHES), first))
    for line in reversed(earlier):
        lines = (line, *lines)
        if (total(lines, "rows_read") or 0) >= _ENOUGH:
            break
    return lines


def _reason(context: "CheckContext", lines: "tuple[BatchRecord, ...]") -> str:
    """Return which rule refuses most of a sample of the records, and one of them; empty where unknown."""
    path = context.snapshot.records.table(QUARANTINE)
    table = path.open()
    if table is None:
        return ""
    import pyarrow.compute as pc

    batches = [line.batch_id for line in lines]
    these = (
        (pc.field("generation") == context.snapshot.generation)
        & (pc.field("batch_id") >= min(batches))
        & (pc.field("batch_id") <= max(batches))
    )
    data = path.dataset(table)
    if KIND in data.schema.names:
        these &= pc.field(KIND).is_null() | (pc.field(KIND) == INPUT)
    rows = data.scanner(columns=["violated", "origin"], filter=these).head(_SAMPLE)
    records = rows.to_pylist()
    rules = Counter(rule for record in records for rule in record["violated"])
    if not rules:
        return ""
    rule = rules.most_common(1)[0][0]
    example = next(record["origin"] for record in records if rule in record["violated"])
    return f"Most of them violate {rule!r}, such as a record of {origin_text(example)} (table {path.name}). "


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
            f"{_remedy(context, rule)}"
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


def _remedy(context: "CheckContext", rule: "Expect") -> str:
    stream = context.stream.name
    if not rule.quarantines:
        return "Correct the input or the function."
    return (
        f"See the rows with tidemill quarantine show {stream}. Correct the rule, and replay them: "
        f"tidemill quarantine replay {stream}; or correct the function, and rebuild the table."
    )


def consequence(rule: "Expect") -> str:
    """Return what happens to a row that violates a rule."""
    return {
        "warn": "such rows are kept",
        "drop": "such rows are left out",
        "quarantine": "such rows go to quarantine",
        "fail": "such a row stops the run",
    }[rule.on_violation]


def _stopped(context: "CheckContext", rule: "Expect") -> str | None:
    """Return the error of the run that a rule stopped; its row never reached the table, so nothing was counted."""
    if context.result is not None and context.result.error is not None:
        return str(context.result.error) if context.result.error.rule == rule.name else None
    last_run = None if context.snapshot.manifest is None else context.snapshot.manifest.last_run
    return last_run.error if last_run is not None and last_run.rule == rule.name else None

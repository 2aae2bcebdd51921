"""The check `quarantine`: the share of a feed's records that its rules refuse."""

from collections import Counter
from typing import TYPE_CHECKING

from tidemill.checks.measures import total
from tidemill.checks.origins import origin_text
from tidemill.checks.result import CheckResult
from tidemill.run.batch.quarantine import QUARANTINE
from tidemill.storage.dataset import dataset_of
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checks.context import CheckContext
    from tidemill.records.batch import BatchRecord

NAME = "quarantine"
_SAMPLE = 1000
_ENOUGH = 20
_BATCHES = 50


def quarantine(context: "CheckContext") -> CheckResult:
    """Return whether the share of refused records is under the declared bound.

    It is that of the newest run, and of the batches before where that one has few records: one bad record that
    arrives alone does not show that a schema has changed.
    """
    lines = _with_enough_records(context)
    read, refused = (total(lines, count) for count in ("rows_read", "rows_quarantined"))
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
        name=NAME,
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
    rows = dataset_of(table).scanner(columns=["violated", "origin"], filter=these).head(_SAMPLE)
    records = rows.to_pylist()
    rules = Counter(rule for record in records for rule in record["violated"])
    if not rules:
        return ""
    rule = rules.most_common(1)[0][0]
    example = next(record["origin"] for record in records if rule in record["violated"])
    return f"Most of them violate {rule!r}, such as a record of {origin_text(example)} (table {path.name}). "

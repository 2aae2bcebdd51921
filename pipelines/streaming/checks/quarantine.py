"""The check `quarantine`: the share of a feed's records that its rules refuse."""

from collections import Counter
from typing import TYPE_CHECKING

from pipelines.streaming import delta_log
from pipelines.streaming.checks.measures import total
from pipelines.streaming.checks.origins import origin_text
from pipelines.streaming.checks.result import CheckResult
from pipelines.streaming.plurals import counted
from pipelines.streaming.run.writer import QUARANTINE

if TYPE_CHECKING:
    from pipelines.streaming.checks.context import CheckContext

NAME = "quarantine"
_SAMPLE = 1000


def quarantine(context: "CheckContext") -> CheckResult:
    """Return whether the share of refused records in the newest run is under the declared bound."""
    read, refused = (total(context.lines, count) for count in ("rows_read", "rows_quarantined"))
    share = refused / read if read and refused else 0.0
    bound = context.bounds.quarantine_share
    passed = not refused or share < bound
    summary = f"{counted(refused or 0, 'record')} of {read or 0:,} went to quarantine in the newest run."
    if not passed:
        summary += (
            f" {_reason(context)}Compare the records with the schema and the rules of the feed; after a correction, "
            "send them again."
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


def _reason(context: "CheckContext") -> str:
    """Return which rule refuses most of a sample of the run's records, and one of them; empty where unknown."""
    path = context.snapshot.records.table(QUARANTINE)
    table = delta_log.open_table(path)
    if table is None:
        return ""
    import pyarrow.compute as pc

    batches = [line.batch_id for line in context.lines]
    this_run = (
        (pc.field("generation") == context.snapshot.generation)
        & (pc.field("batch_id") >= min(batches))
        & (pc.field("batch_id") <= max(batches))
    )
    rows = table.to_pyarrow_dataset().scanner(columns=["violated", "origin"], filter=this_run).head(_SAMPLE)
    records = rows.to_pylist()
    rules = Counter(rule for record in records for rule in record["violated"])
    if not rules:
        return ""
    rule = rules.most_common(1)[0][0]
    example = next(record["origin"] for record in records if rule in record["violated"])
    return f"Most of them violate {rule!r}, such as a record of {origin_text(example)} (table {path.name}). "

"""The check `late_rows`: the share of input that arrived behind the watermark and was not counted."""

from typing import TYPE_CHECKING

from tidemill.checks.measures import total
from tidemill.checks.result import CheckResult
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checks.context import CheckContext

NAME = "late_rows"


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
        name=NAME,
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

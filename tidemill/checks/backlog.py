"""The check `backlog`: unread data becomes less, is not stuck, and is read before its source removes it."""

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tidemill.checks.result import CheckResult, time_of, unevaluated
from tidemill.connectors.answers import Expiry
from tidemill.connectors.connector import Reading
from tidemill.connectors.registry import resolved
from tidemill.definitions.bounds import ONE_DAY, length
from tidemill.errors import CheckpointError, TidemillError
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemill.checks.context import CheckContext
    from tidemill.connectors.backlog import Backlog
    from tidemill.definitions.bounds import Severity
    from tidemill.definitions.source import Source

NAME = "backlog"


def backlog(context: "CheckContext") -> CheckResult:
    """Return whether the stream keeps up with its sources and with their retention."""
    try:
        # A source that cannot be counted may always have data, which only a run finds.
        waiting = {name: part for name, part in context.plan.backlog.items() if part.is_known}
        expiries = (_expiry(context, name, source) for name, source in context.stream.sources.items())
        expiry = min(filter(None, expiries), key=lambda expiry: expiry.at_ms, default=None)
    except CheckpointError:
        summary = "Unread data cannot be counted from a checkpoint that is not sound; see checkpoint_sound."
        return unevaluated(NAME, summary)
    except TidemillError as error:
        summary = str(error).removeprefix(f"{error.stream}: ")
        return (
            unevaluated(NAME, summary)
            if error.transient
            else CheckResult(name=NAME, passed=False, summary=summary)
        )
    since = waiting_since(context, waiting)
    waited = timedelta(0) if since is None else context.now - since
    left = None if expiry is None else timedelta(milliseconds=expiry.at_ms - context.now_ms)
    severity: Severity = "error"
    summary = ""
    if expiry is not None and left is not None and left < _margin(context, expiry):
        summary = (
            f"{_when(left)} the retention of {_shown(expiry.retention)} may remove {expiry.what}, which is unread (at "
            f"{time_of(expiry.at_ms)}). Run the stream before then, or raise the retention."
        )
    elif since is not None and waited > (length(context.bounds.stuck_after) or timedelta(0)):
        summary = (
            f"{_described(waiting)} waits, and since {since:%Y-%m-%d %H:%M:%S} no batch has been committed: the "
            f"stream is stuck. tidemill status {context.stream.name} shows why; tidemill run {context.stream.name}."
        )
    elif grown := _over_bounds(context, waiting):
        severity, summary = "warn", grown
    return CheckResult(
        name=NAME,
        passed=not summary,
        severity=severity,
        summary=summary or (f"{_described(waiting)} waits." if any(waiting.values()) else "Nothing waits."),
        numbers={
            **{f"backlog_{unit}": count for unit, count in _by_unit(waiting).items()},
            "waiting_seconds": round(waited.total_seconds(), 3),
            "retention_seconds_left": None if left is None else round(left.total_seconds(), 3),
        },
    )


def waiting_since(context: "CheckContext", waiting: "Mapping[str, Backlog]") -> "datetime | None":
    """Return since when data waits while no batch is committed, as far as earlier checks know; None if none waits."""
    if not any(waiting.values()):
        return None
    before = context.before
    if (
        before is not None
        and before.waiting_since is not None
        and before.waiting_batch == context.snapshot.last_commit
    ):
        return datetime.fromisoformat(before.waiting_since)
    return context.now


def _over_bounds(context: "CheckContext", waiting: "Mapping[str, Backlog]") -> str:
    """Return which declared bound is exceeded; empty where none is, or where less waits than at the last check."""
    counts = _by_unit(waiting)
    earlier = Counter[str]()
    for source, count in (context.before.backlog if context.before else {}).items():
        if source in waiting:
            earlier[waiting[source].unit] += count
    for unit, most in context.bounds.backlog.items():
        count = counts.get(unit, 0)
        if count > most and not count < earlier[unit]:
            return (
                f"{pluralize(count, unit.removesuffix('s'))} wait, more than {most:,}, and not fewer than at the last "
                "check. Run the stream more often, or give its batches higher limits and its runs a larger machine."
            )
    return ""


def _by_unit(waiting: "Mapping[str, Backlog]") -> dict[str, int]:
    counts = Counter[str]()
    for part in waiting.values():
        counts[part.unit] += part.count
    return dict(counts)


def _described(waiting: "Mapping[str, Backlog]") -> str:
    return ", ".join(f"{part} in {source}" for source, part in waiting.items() if part)


def _margin(context: "CheckContext", expiry: Expiry) -> timedelta:
    declared = length(context.bounds.retention_margin)
    return min(ONE_DAY, expiry.retention / 4) if declared is None else declared


def _expiry(context: "CheckContext", name: str, source: "Source") -> Expiry | None:
    offset = context.snapshot.tail.committed(name)
    if offset is None or offset.raw is None or not source.streaming:
        return None
    connector, bound = resolved(source, context.target)
    return connector.expiry(bound, Reading(target=context.target, name=name, offset=offset))


def _when(left: timedelta) -> str:
    return f"In {_shown(left)}" if left > timedelta(0) else "From now on"


def _shown(length: timedelta) -> str:
    """Return a length of time for people: days and hours, or minutes."""
    minutes = int(length.total_seconds() // 60)
    days, hours = divmod(minutes // 60, 24)
    if days:
        return f"{pluralize(days, 'day')} {pluralize(hours, 'hour')}" if hours else pluralize(days, "day")
    return pluralize(minutes // 60, "hour") if minutes >= 60 else pluralize(minutes, "minute")  # noqa: PLR2004

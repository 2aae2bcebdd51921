"""The checks of event times: `watermark`, and `freshness`, so that an empty run is not fresh."""

from datetime import UTC, date, datetime, time
from itertools import pairwise
from typing import TYPE_CHECKING

from tidemill.checkpoint import history
from tidemill.checks.origins import origin_of_event
from tidemill.checks.result import CheckResult, time_of
from tidemill.definitions.bounds import length
from tidemill.text.durations import iso_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemill.checks.context import CheckContext
    from tidemill.definitions.bounds import Severity
    from tidemill.definitions.stream import Stream
    from tidemill.storage.table_ref import TableRef


def has_watermark(stream: "Stream") -> bool:
    """Return whether a source of the stream has a watermark."""
    return any(source.watermark is not None for source in stream.sources.values())


def watermark(context: "CheckContext") -> CheckResult:
    """Return whether the watermark is where the events and the clock allow it."""
    now, current = context.now_ms, context.snapshot.next_watermark_ms
    if current is None:
        return CheckResult(
            name="watermark", passed=True, summary="No watermark yet.", numbers={"watermark": None}
        )
    bound = length(context.bounds.watermark_lag)
    moves = _watermarks(context)
    lag = (now - current) / 1000
    severity: Severity = "error"
    if back := _back(context, moves, current):
        summary = back
    elif current > now:
        summary = _in_the_future(context, moves, current)
    elif ahead := _ahead_of_events(context, current):
        summary = ahead
    elif bound is not None and lag > bound.total_seconds():
        severity = "warn"
        summary = (
            f"The watermark is {time_of(current)}, further behind the clock than {bound}. Run the stream, and find "
            "out which of its sources has no new events: the slowest one holds the watermark back."
        )
    else:
        summary = ""
    return CheckResult(
        name="watermark",
        passed=not summary,
        severity=severity,
        summary=summary or f"The watermark is {time_of(current)}.",
        numbers={
            "watermark": iso_of(current),
            "watermark_lag_seconds": round(lag, 3),
            "watermark_lag_bound_seconds": None if bound is None else bound.total_seconds(),
        },
    )


def _watermarks(context: "CheckContext") -> list[tuple[int, int]]:
    """Return the batches whose offsets the checkpoint keeps, each with its watermark; 0 before any event."""
    return [
        (batch.batch_id, batch.watermark_ms or 0)
        for batch in history(context.snapshot.checkpoint)
        if batch.problem is None
    ]


def _back(context: "CheckContext", moves: "Sequence[tuple[int, int]]", current: int) -> str:
    """Return where the watermark went back; empty where it never did."""
    restore = (
        "Results that were emitted may be emitted again. Restore the checkpoint and the table of the same time from "
        "a copy."
    )
    for (_, before), (batch, after) in pairwise(moves):
        if after < before:
            return f"The watermark goes back from {time_of(before)} to {time_of(after)} in offsets/{batch}. {restore}"
    highest = max((line.watermark_ms or 0 for line in context.lines), default=0)
    if current < highest:
        return (
            f"The next batch has the watermark {time_of(current)}, and the ledger has one of {time_of(highest)}: the "
            f"checkpoint is older than the ledger. {restore}"
        )
    return ""


def _in_the_future(context: "CheckContext", moves: "Sequence[tuple[int, int]]", current: int) -> str:
    """Name the event that moved the watermark past the clock, or else the batch that read it."""
    moved = next((batch - 1 for batch, mark in moves if mark > context.now_ms), context.snapshot.last_commit)
    origin = origin_of_event(context, context.now_ms)
    cause = f"the event {origin}" if origin else f"an event that batch {moved} read"
    return (
        f"The watermark is {time_of(current)}, in the future: batch {moved} moved it there, by {cause}. Until then "
        "every event of the present is late. Correct the record, refuse such records with a quarantine rule on the "
        "event time, and rebuild the stream."
    )


def _ahead_of_events(context: "CheckContext", current: int) -> str:
    """Compare the watermark with the newest event of the batch that moved it; empty where that is in order.

    With several watermarks Spark reports the events of one of them only, which proves nothing.
    """
    if sum(source.watermark is not None for source in context.stream.sources.values()) != 1:
        return ""
    lines = context.lines
    if not lines or lines[-1].batch_id != context.snapshot.last_commit:
        return ""
    marks = [*(line.watermark_ms or 0 for line in lines[1:]), current]
    for line, after in zip(lines, marks, strict=False):
        newest = line.newest_event_ms
        if after > max(newest or 0, line.watermark_ms or 0) and not line.reconstructed:
            events = "it had no event" if newest is None else f"its newest event is of {time_of(newest)}"
            return (
                f"Batch {line.batch_id} moved the watermark to {time_of(after)}, and {events}: "
                f"commits/{line.batch_id} is not what the batch wrote. Restore it from a copy."
            )
    return ""


def freshness(context: "CheckContext") -> CheckResult:
    """Return whether the newest event is as young as declared."""
    column, bound = context.bounds.event_time, length(context.bounds.freshness)
    table = context.snapshot.records.table()
    newest = newest_event_ms(context) if column is None else newest_in(table, column)
    if newest is None or bound is None:
        where = "Spark has reported no event time" if column is None else f"the table has no {column}"
        return CheckResult(
            name="freshness",
            passed=False,
            summary=f"The newest event is unknown: {where}. Run the stream, or name the column of the event times "
            "with event_time=.",
            numbers={"newest_event": None, "event_age_seconds": None},
        )
    age = context.now_ms / 1000 - newest / 1000
    numbers = {
        "newest_event": iso_of(newest),
        "event_age_seconds": round(age, 3),
        "freshness_bound_seconds": bound.total_seconds(),
    }
    if age < 0:
        summary = (
            f"The newest event is in the future ({time_of(newest)}), so it does not show how old the data is. "
            "Correct the record at its origin."
        )
    elif age > bound.total_seconds():
        summary = (
            f"The newest event is of {time_of(newest)}, older than {bound}. Find out whether the source still "
            "sends events, and whether the streams before this one run."
        )
    else:
        summary = f"The newest event is of {time_of(newest)}."
    return CheckResult(
        name="freshness", passed=0 <= age <= bound.total_seconds(), summary=summary, numbers=numbers
    )


def newest_event_ms(context: "CheckContext") -> int | None:
    """Return the newest event that Spark has reported for the watermark; None where it has reported none.

    The watermark itself is the newest event of all batches minus its delay.
    """
    reported = [line.newest_event_ms for line in context.lines if line.newest_event_ms is not None]
    delays = [source.watermark.delay for source in context.stream.sources.values() if source.watermark]
    if (watermark := context.snapshot.next_watermark_ms) is not None and delays:
        reported.append(watermark + int(min(delays).total_seconds() * 1000))
    return max(reported, default=None)


def newest_in(table: "TableRef", column: str) -> int | None:
    """Return the newest time in a column of a table, by the statistics in its log; no row is read.

    Returns:
        Milliseconds since the epoch; None without the table, the column, or statistics of it.
    """
    opened = table.open()
    if opened is None:
        return None
    files = opened.get_add_actions(flatten=True)
    name = next(
        (name for name in (f"max.{column}", f"partition.{column}") if name in files.schema.names), None
    )
    if name is None:
        return None
    times = [_milliseconds(value) for value in files.column(name).to_pylist() if value is not None]
    return max(times, default=None)


def _milliseconds(value: object) -> int:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time.min)
    if not isinstance(value, datetime):
        raise TypeError(f"{value!r} is not a time")
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)

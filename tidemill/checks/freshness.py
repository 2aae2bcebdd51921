"""The check `freshness`: the newest event in the table against the clock, so that an empty run is not fresh."""

from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING

from tidemill.checks.measures import iso_of, time_of
from tidemill.checks.result import CheckResult
from tidemill.definitions.bounds import length

if TYPE_CHECKING:
    from tidemill.checks.context import CheckContext
    from tidemill.storage.table_ref import TableRef

NAME = "freshness"


def freshness(context: "CheckContext") -> CheckResult:
    """Return whether the newest event is as young as declared."""
    column, bound = context.bounds.event_time, length(context.bounds.freshness)
    table = context.snapshot.records.table()
    newest = newest_event_ms(context) if column is None else newest_in(table, column)
    if newest is None or bound is None:
        where = "Spark has reported no event time" if column is None else f"the table has no {column}"
        return CheckResult(
            name=NAME,
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
    return CheckResult(name=NAME, passed=0 <= age <= bound.total_seconds(), summary=summary, numbers=numbers)


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

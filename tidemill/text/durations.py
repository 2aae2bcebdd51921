"""Lengths of time as Spark writes them, `"2 hours"`, `"1 day 12 hours"`, and times as a command line has them."""

import re
from datetime import UTC, datetime, timedelta

from tidemill.errors import ConfigurationError, DefinitionError

_PART = re.compile(r"\s*(\d+)\s*(millisecond|second|minute|hour|day|week)s?\s*", re.IGNORECASE)


def parse_duration(value: str | timedelta, *, field: str) -> timedelta:
    """Return a length of time from Spark's interval string, or the timedelta itself.

    Months and years have no fixed length, so Spark's watermarks refuse them and so do we.

    Args:
        value: `"2 hours"`, or a timedelta.
        field: The field it is for, named in the error.

    Raises:
        DefinitionError: The string is no interval, or the length is negative.
    """
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise DefinitionError(f"{field} is {value}: a length of time cannot be negative.")
        return value
    total = timedelta(0)
    position = 0
    while isinstance(value, str) and (part := _PART.match(value, position)):
        total += timedelta(**{f"{part[2].lower()}s": int(part[1])})
        position = part.end()
    if not isinstance(value, str) or not position or position != len(value):
        raise DefinitionError(
            f"{field} is {value!r}: write a length of time such as '10 minutes', '2 hours' or '1 day 12 hours' "
            "(milliseconds to weeks)."
        )
    return total


def now_iso() -> str:
    """Return the current time as ISO-8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def iso_of(milliseconds: int | None) -> str | None:
    """Return a time in milliseconds since the epoch as ISO-8601 in UTC, for programs; None for none."""
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def format_duration(length: timedelta) -> str:
    """Return a timedelta as `parse_duration` reads it: `1 day 12 hours`; exact to the millisecond."""
    left = length // timedelta(milliseconds=1)
    parts = []
    for unit in ("day", "hour", "minute", "second", "millisecond"):
        count, left = divmod(left, timedelta(**{f"{unit}s": 1}) // timedelta(milliseconds=1))
        parts += [f"{count} {unit}{'s' if count > 1 else ''}"] if count else []
    return " ".join(parts) or "0 seconds"


_SHORT = re.compile(r"(\d+)([smhd])")
_SHORT_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def flag_duration(value: str, *, field: str) -> timedelta:
    """Return a length of time from a command line: `90s`, `10m`, `2h`, `1d`, or as `parse_duration` takes it.

    Raises:
        DefinitionError: The string is no length of time.
    """
    short = _SHORT.fullmatch(value.strip())
    return (
        timedelta(**{_SHORT_UNITS[short[2]]: int(short[1])}) if short else parse_duration(value, field=field)
    )


def flag_time(value: str, *, field: str) -> datetime:
    """Return the time of a command line: ISO-8601, in UTC unless it has an offset.

    Args:
        value: `2026-01-31T12:00`.
        field: What it is for, named in the error.

    Raises:
        ConfigurationError: It is no time.
    """
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise ConfigurationError(
            f"{field} is {value!r}, which is no time. Give an ISO-8601 time such as 2026-01-31T12:00.",
            code="argument-invalid",
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def spark_interval(length: timedelta) -> str:
    """Return a timedelta as Spark's interval string, exact to the millisecond."""
    return f"{length // timedelta(milliseconds=1)} milliseconds"

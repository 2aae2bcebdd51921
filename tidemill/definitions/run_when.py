"""RunWhen: the policy by which the backlog of a stream starts a run. Needs no Spark and no Dagster."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tidemill.errors import DefinitionError
from tidemill.text.durations import parse_duration
from tidemill.text.plurals import pluralize

# The range of each field of a cron expression, and the names that stand for numbers.
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_CRON = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, _MONTHS), (0, 7, _DAYS))
_CRON_PART = re.compile(r"(?:\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How much waits for a stream, over all of its sources.

    A number is None where no source of the stream can give it.

    Attributes:
        rows: Messages of topics, and rows of tables.
        files: Files of folders.
        bytes: Bytes of files and of tables.
        oldest_at: When the oldest unread data arrived.
        newest_at: When the newest data arrived.
    """

    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    oldest_at: datetime | None = None
    newest_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Whether a stream's backlog starts a run now.

    Attributes:
        now: Whether it does.
        reason: The condition that was reached, or what is missing, for people.
    """

    now: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWhen:
    """When the backlog of a stream starts a run.

    Without a condition, any unread data does. With conditions, the first one that is reached does. A condition
    that the stream's sources cannot measure does not count (rows in files, files of a topic); if none can be
    measured, any unread data starts a run.

    A batch to repeat, a pending no-data batch, a first run and missing ledger lines need no condition.

    Attributes:
        rows: Unread messages of topics and rows of tables.
        files: Unread files.
        bytes: Unread bytes of files and of tables.
        oldest: Age of the oldest unread data.
        quiet: Time since data arrived last: a run waits for the end of an upload.
        poll_every: How often a run looks for data in a source whose backlog cannot be counted without Spark; such a
            source starts no other run.
        timers_every: How often a run fires the processing-time timers of `applyInPandasWithState` and
            `transformWithState` that are due, where no data arrives and there is state.
        at_most_every: The shortest time between the end of a run and the start of the next.
        cron: A schedule, `"0 6 * * *"`, instead of conditions: unread data waits for its next tick.
    """

    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    oldest: str | timedelta | None = None
    quiet: str | timedelta | None = None
    poll_every: str | timedelta = "10 minutes"
    timers_every: str | timedelta = "10 minutes"
    at_most_every: str | timedelta = "1 minute"
    cron: str | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "files", "bytes"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise DefinitionError(f"run_when: {name} is {value!r}: give a number from 1.")
        for name in ("oldest", "quiet", "poll_every", "timers_every", "at_most_every"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, parse_duration(value, field=f"run_when: {name}"))
        if self.cron is not None:
            _check_cron(self.cron)
            if self.has_conditions:
                raise DefinitionError(
                    "run_when: cron is a schedule in place of the other conditions: leave rows, files, bytes, oldest "
                    "and quiet out.",
                    code="arguments-conflict",
                )

    @property
    def has_conditions(self) -> bool:
        """Whether unread data alone does not start a run."""
        conditions = (self.rows, self.files, self.bytes, self.oldest, self.quiet)
        return any(condition is not None for condition in conditions)

    def due(self, amount: Amount, *, now: datetime) -> Due:
        """Return whether what waits starts a run.

        Args:
            amount: What waits; there is some.
            now: The current time, with a time zone.
        """
        compared = self._compared(amount, now)
        if not compared:
            return Due(now=True, reason="unread data")
        reached = next((text for is_reached, text in compared if is_reached), None)
        if reached is not None:
            return Due(now=True, reason=reached)
        return Due(now=False, reason="waits for more: " + ", ".join(text for _, text in compared))

    def pause(self, last_ended_at: datetime | None, *, now: datetime) -> timedelta:
        """Return how long to wait until `at_most_every` allows a run; zero where it allows one now."""
        assert isinstance(self.at_most_every, timedelta)  # noqa: S101 - __post_init__ made it one
        if last_ended_at is None:
            return timedelta(0)
        return max(timedelta(0), last_ended_at + self.at_most_every - now)

    def next_poll(self, last_ended_at: datetime | None) -> datetime | None:
        """Return when a run looks for data that cannot be counted; None where the schedule says it, or at once.

        Args:
            last_ended_at: When the last run ended; None before the first.
        """
        assert isinstance(self.poll_every, timedelta)  # noqa: S101 - __post_init__ made it one
        return None if last_ended_at is None or self.cron is not None else last_ended_at + self.poll_every

    def next_timers(self, last_ended_at: datetime | None) -> datetime | None:
        """Return from when on a run fires timers; None for at once.

        Args:
            last_ended_at: When the last run ended; None before the first.
        """
        assert isinstance(self.timers_every, timedelta)  # noqa: S101 - __post_init__ made it one
        return None if last_ended_at is None else last_ended_at + self.timers_every

    def _compared(self, amount: Amount, now: datetime) -> list[tuple[bool, str]]:
        """Return whether each condition that can be measured is reached, and how far it is."""
        compared = []
        for name, singular in (("rows", "row"), ("files", "file"), ("bytes", "byte")):
            least, present = getattr(self, name), getattr(amount, name)
            if least is not None and present is not None:
                compared.append((present >= least, f"{present:,} of {pluralize(least, singular)}"))
        ages = (("oldest", amount.oldest_at, "the oldest is"), ("quiet", amount.newest_at, "quiet for"))
        for name, since, text in ages:
            least = getattr(self, name)
            if least is not None and since is not None:
                age = max(timedelta(0), now - since)
                compared.append((age >= least, f"{text} {_plain(age)} of {_plain(least)}"))
        return compared


def moment(milliseconds: int) -> datetime:
    """Return a time of Kafka, of a file or of a commit as a datetime in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _plain(length: timedelta) -> str:
    return str(timedelta(seconds=round(length.total_seconds())))


def _check_cron(cron: str) -> None:
    """Check a cron expression of five fields; Dagster would refuse the whole code location for a wrong one."""
    fields = cron.split() if isinstance(cron, str) else []
    if len(fields) != len(_CRON) or not all(
        _is_cron_field(field, *limits) for field, limits in zip(fields, _CRON, strict=False)
    ):
        raise DefinitionError(
            f"run_when: cron is {cron!r}: give five fields, such as '*/15 * * * *' or '0 6 * * mon-fri'."
        )


def _is_cron_field(field: str, low: int, high: int, names: Sequence[str]) -> bool:
    def number(text: str) -> int:
        if text.lower() in names:
            return names.index(text.lower()) + low
        return int(text) if text.isdigit() else -1

    for part in field.split(","):
        match = _CRON_PART.fullmatch(part)
        if match is None or match["step"] == "0":
            return False
        bounds = [number(text) for text in (match["first"], match["last"]) if text is not None]
        if any(not low <= bound <= high for bound in bounds) or bounds != sorted(bounds):
            return False
    return True

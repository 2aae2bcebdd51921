"""The bounds of a stream's checks, as they are declared. Needs no Spark."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, get_args

from tidemill.definitions.source import positive
from tidemill.errors import DefinitionError
from tidemill.text.durations import parse_duration
from tidemill.text.names import RESERVED_RULES, valid_choice

Severity = Literal["warn", "error"]
"""How serious a failed check is."""
Unit = Literal["files", "messages", "versions"]
"""What a backlog is counted in; versions are those of a Delta table."""
ONE_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBounds:
    """Bounds of a stream's state, for the check `state_bounded`. A number without a bound is only reported.

    Attributes:
        rows: The most rows.
        bytes: The most bytes, as Spark reports the memory of the state.
        growth: The most that the rows may grow from one run to the next, as a share: 0.5 is half more.
        snapshot_batches: The most batches since the newest snapshot of a store. A restart repeats the changes
            of these batches.
    """

    rows: int | None = None
    bytes: int | None = None
    growth: float | None = None
    snapshot_batches: int | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "bytes", "snapshot_batches"):
            positive(getattr(self, name), field=f"StateBounds: {name}")
        if self.growth is not None and (not _is_number(self.growth) or self.growth < 0):
            raise DefinitionError(f"StateBounds: growth is {self.growth!r}; it is a share such as 0.5.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """Bounds and severities of a stream's checks. A number without a bound is only reported.

    Attributes:
        watermark_lag: How far the watermark may be behind the clock: `"6 hours"`.
        late_share: The largest share of input that may be late; 0.01 is one percent.
        freshness: How old the newest event may be: `"1 day"`. Without it there is no check `freshness`.
        event_time: The column of the main table that has the event times. By default the newest event is the one
            that Spark reports for the watermark.
        backlog: The most unread data by unit: `{"files": 500, "messages": 1_000_000, "versions": 100}`.
        stuck_after: How long unread data may wait while no batch is committed.
        retention_margin: How long before the retention of a source removes unread data the check fails. None:
            1 day, or a quarter of the retention where that is shorter.
        quarantine_share: The share of a feed's records in quarantine from which the check fails: 1.0 if all are
            refused, as after a change of their schema.
        exact_offsets: Whether each offset of its topics has a message, so that `exactly_once` compares their
            numbers. False for topics that producers write in transactions; compacted topics are recognized.
        state: Bounds of the state.
        severity: `warn` or `error` by the name of a check, instead of its own.
    """

    watermark_lag: timedelta | str | None = None
    late_share: float | None = None
    freshness: timedelta | str | None = None
    event_time: str | None = None
    backlog: Mapping[Unit, int] = field(default_factory=dict)
    stuck_after: timedelta | str = ONE_DAY
    retention_margin: timedelta | str | None = None
    quarantine_share: float = 1.0
    exact_offsets: bool = True
    state: StateBounds = field(default_factory=StateBounds)
    severity: Mapping[str, Severity] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("watermark_lag", "freshness", "stuck_after", "retention_margin"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, parse_duration(value, field=f"Checks: {name}"))
        for name in ("late_share", "quarantine_share"):
            _share(getattr(self, name), field=f"Checks: {name}")
        if self.event_time is not None and (not isinstance(self.event_time, str) or not self.event_time):
            raise DefinitionError(f"Checks: event_time is {self.event_time!r}; name a column of the table.")
        _members(self.backlog, get_args(Unit), field="Checks: backlog")
        for unit, most in self.backlog.items():
            positive(most, field=f"Checks: backlog[{unit!r}]")
        if not isinstance(self.state, StateBounds):
            raise DefinitionError(f"Checks: state is {self.state!r}; use StateBounds(...).")
        _members(self.severity, sorted(RESERVED_RULES), field="Checks: severity")
        for check, severity in self.severity.items():
            valid_choice(severity, get_args(Severity), field=f"Checks: severity[{check!r}]")


def length(value: timedelta | str | None) -> timedelta | None:
    """Return a length of time of a declaration, which `Checks` has parsed."""
    return None if value is None else parse_duration(value, field="Checks")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _share(value: float | None, *, field: str) -> None:
    if value is not None and (not _is_number(value) or not 0 <= value <= 1):
        raise DefinitionError(f"{field} is {value!r}; it is a share from 0 to 1.")


def _members(value: object, allowed: "tuple[str, ...] | list[str]", *, field: str) -> None:
    if not isinstance(value, Mapping):
        raise DefinitionError(f"{field} is {value!r}; give a dict.")
    if unknown := sorted(str(key) for key in value if key not in allowed):
        raise DefinitionError(f"{field} has {unknown[0]!r}; use {', '.join(allowed)}.")

"""Dagster's event log, asked what went wrong with the streams of a code location and what has recovered since."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagster import (
    AssetCheckKey,
    AssetKey,
    AssetRecordsFilter,
    DagsterEventType,
    RunStatusChangeRecordsFilter,
)

from tidemill.orchestration.alerts.incidents import NEEDED_EVENTS, Incident, RunEvents, is_good

if TYPE_CHECKING:
    from dagster import DagsterInstance, EventLogEntry, EventLogRecord

    from tidemill.definitions.stream import Stream

_FAILURE: Final = DagsterEventType.RUN_FAILURE
_ENDS: Final = (_FAILURE, DagsterEventType.RUN_SUCCESS, DagsterEventType.RUN_CANCELED)
_RUNS_PER_TICK = 200
_OLD_FAILURES = 1_000
_NEWEST_OBSERVATIONS = 100
_NEWEST_EVALUATIONS = 20


@dataclass(frozen=True, slots=True)
class Recovery:
    """What ended an incident: the run, and when in seconds since the epoch."""

    run_id: str
    at: float


class IncidentLog:
    """The event log as far as it concerns some streams.

    Args:
        instance: Dagster's instance.
        streams: The streams by asset key.
    """

    def __init__(
        self,
        instance: "DagsterInstance",
        streams: "Mapping[AssetKey, Stream]",
        checks: Iterable[AssetCheckKey],
    ) -> None:
        self._instance = instance
        self._streams = streams
        self._checks = list(checks)
        self._keys = {str(stream.name): key for key, stream in streams.items()}

    def has_stream(self, name: str) -> bool:
        """Return whether the code location has a stream of this name."""
        return name in self._keys

    def newest_position(self) -> int:
        """Return the position of the last run that has ended; 0 if none has."""
        newest = [self._instance.fetch_run_status_changes(kind, limit=1).records for kind in _ENDS]
        return max((record.storage_id for records in newest for record in records), default=0)

    def since(self, position: int) -> Iterator[tuple[int, list[Incident]]]:
        """Yield the position and the incidents of each run that ended after a position, oldest first."""
        ended: list[EventLogRecord] = []
        for kind in _ENDS:
            after = RunStatusChangeRecordsFilter(kind, after_storage_id=position)
            ended += self._instance.fetch_run_status_changes(
                after, limit=_RUNS_PER_TICK, ascending=True
            ).records
        for record in sorted(ended, key=lambda record: record.storage_id)[:_RUNS_PER_TICK]:
            yield record.storage_id, self._of_run(record.event_log_entry)

    def current(self) -> list[Incident]:
        """Return the incidents that have not recovered, for the first tick and a cursor that was reset.

        They are those of the newest failed runs, and of the newest evaluation of each check.
        """
        failed = self._instance.fetch_run_status_changes(_FAILURE, limit=_OLD_FAILURES)
        latest: dict[tuple[str, str | None], Incident] = {}
        for record in reversed(failed.records):
            for incident in self._of_run(record.event_log_entry):
                if incident.cause == "run failed":
                    latest[incident.subject, None] = incident
        for incident in self._failed_checks():
            latest[incident.subject, incident.check] = incident
        return [incident for incident in latest.values() if self.recovery(incident) is None]

    def recovery(self, incident: Incident) -> Recovery | None:
        """Return what ended an incident; None while it lasts."""
        if incident.check is not None:
            return self._passed_since(
                AssetCheckKey(self._keys[incident.subject], incident.check), incident.at
            )
        ended = [self._good_since(self._keys[name], incident.at) for name in incident.streams]
        recoveries = [recovery for recovery in ended if recovery is not None]
        if len(recoveries) < len(ended):
            return None
        return max(recoveries, key=lambda recovery: recovery.at, default=None)

    def _of_run(self, end: "EventLogEntry") -> list[Incident]:
        records = self._instance.get_records_for_run(end.run_id, of_type=set(NEEDED_EVENTS)).records
        entries = [record.event_log_entry for record in records]
        return RunEvents(end.run_id, end, entries, self._streams).incidents()

    def _failed_checks(self) -> Iterator[Incident]:
        for check in self._checks:
            entry = self._newest_evaluation(check)
            if entry is not None:
                yield from RunEvents(entry.run_id, entry, [entry], self._streams).incidents()

    def _passed_since(self, check: AssetCheckKey, at: float) -> Recovery | None:
        """Return the newest evaluation of a check if it passed after a time."""
        newest = self._newest_evaluation(check)
        if newest is None or newest.timestamp <= at:
            return None
        passed = newest.get_dagster_event().asset_check_evaluation_data.passed
        return Recovery(newest.run_id, newest.timestamp) if passed else None

    def _newest_evaluation(self, check: AssetCheckKey) -> "EventLogEntry | None":
        """Return the newest evaluation of a check; runs in progress have only planned theirs."""
        history = self._instance.event_log_storage.get_asset_check_execution_history(
            check, limit=_NEWEST_EVALUATIONS
        )
        evaluations = [
            record.event
            for record in history
            if record.event is not None
            and record.event.get_dagster_event().event_type == DagsterEventType.ASSET_CHECK_EVALUATION
        ]
        return max(evaluations, key=lambda event: event.timestamp, default=None)

    def _good_since(self, key: AssetKey, at: float) -> Recovery | None:
        """Return the newest good run of a stream after a time."""
        after = AssetRecordsFilter(key, after_timestamp=at)
        records = [
            *self._instance.fetch_materializations(after, limit=1).records,
            *self._instance.fetch_observations(after, limit=_NEWEST_OBSERVATIONS).records,
        ]
        good = [
            record.event_log_entry
            for record in records
            if is_good(record.event_log_entry.get_dagster_event())
        ]
        return max(
            (Recovery(entry.run_id, entry.timestamp) for entry in good),
            key=lambda recovery: recovery.at,
            default=None,
        )

"""What went wrong in one run: the incidents that its events show, as values."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagster import AssetCheckKey, AssetCheckSeverity, AssetKey, DagsterEventType

from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from dagster import AssetCheckEvaluation, DagsterEvent, EventLogEntry

    from tidemill.definitions.stream import Stream
    from tidemill.orchestration.alerts.alert import Cause

FAILED, SKIPPED, ERRORS = "tidemill/failed", "tidemill/skipped", "tidemill/errors"
IDLE = "tidemill/reason"  # of the observations of a stream, only that of an idle run has it
# A blocking check fails its step, too; the check is the incident.
_CHECK_FAILED = "DagsterAssetCheckFailedError"
NEEDED_EVENTS = frozenset(
    {
        DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
        DagsterEventType.ASSET_MATERIALIZATION,
        DagsterEventType.ASSET_OBSERVATION,
        DagsterEventType.ASSET_CHECK_EVALUATION,
        DagsterEventType.STEP_FAILURE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A failure of a stream, or of a run that did not get to its streams.

    Attributes:
        cause: What failed.
        subject: The stream, or the pipeline of several streams.
        check: The check that failed.
        reason: The kind of error; another kind for the same cause is worth another message.
        message: What happened, and the fix.
        at: When it happened, in seconds since the epoch; only what is newer counts as recovery.
        streams: The streams whose next good run ends it.
    """

    cause: "Cause"
    subject: str
    check: str | None = None
    reason: str = ""
    message: str
    run_id: str
    at: float
    streams: tuple[str, ...]


class RunEvents:
    """The events of one run.

    Args:
        end: The event that ended it.
        entries: Its events of the types `NEEDED_EVENTS`, oldest first.
        streams: The streams by asset key; all other assets are ignored.
    """

    def __init__(
        self,
        run_id: str,
        end: "EventLogEntry",
        entries: "Iterable[EventLogEntry]",
        streams: "Mapping[AssetKey, Stream]",
    ) -> None:
        self._run_id = run_id
        self._end = end
        self._streams = streams
        self._names = {str(stream.name): stream for stream in streams.values()}
        self._events = [(entry.timestamp, entry.dagster_event) for entry in entries if entry.dagster_event]

    def incidents(self) -> list[Incident]:
        """Return what went wrong: failed checks whatever the end, and failed streams if the run failed."""
        incidents = list(self._failed_checks())
        if self._end.get_dagster_event().event_type == DagsterEventType.RUN_FAILURE:
            incidents += self._failures()
        return incidents

    def _failed_checks(self) -> Iterator[Incident]:
        latest: dict[AssetCheckKey, tuple[float, AssetCheckEvaluation]] = {}
        for at, event in self._of(DagsterEventType.ASSET_CHECK_EVALUATION):
            evaluation = event.asset_check_evaluation_data
            latest[evaluation.asset_check_key] = at, evaluation
        for at, evaluation in latest.values():
            stream = self._streams.get(evaluation.asset_key)
            if stream is None or evaluation.passed or evaluation.severity != AssetCheckSeverity.ERROR:
                continue
            yield Incident(
                cause="check failed",
                subject=str(stream.name),
                check=evaluation.check_name,
                message=evaluation.description or f"The check {evaluation.check_name} did not pass.",
                run_id=self._run_id,
                at=at,
                streams=(str(stream.name),),
            )

    def _failures(self) -> Iterator[Incident]:
        failures = list(self._of(DagsterEventType.STEP_FAILURE))
        for at, event in failures:
            metadata = _metadata(event)
            if FAILED in metadata:
                yield from self._failed_streams(metadata, at)
            elif not _is_check_failure(event):
                yield from self._unfinished(event.step_key, _reason(event), _description(event), at)
        if not failures:
            event = self._end.get_dagster_event()
            error = event.job_failure_data.error if event.event_specific_data else None
            text = " ".join(filter(None, (event.message, error.message.strip() if error else "")))
            yield from self._unfinished(
                None, error.cls_name or "" if error else "", text, self._end.timestamp
            )

    def _failed_streams(self, metadata: Mapping[str, Any], at: float) -> Iterator[Incident]:
        """Yield the streams that a step names; those that were skipped because of one are part of its message."""
        for name in metadata[FAILED]:
            if (stream := self._names.get(name)) is None:
                continue
            error = metadata.get(ERRORS, {}).get(name, {})
            message = error.get("message", f"{name}: the run failed.")
            skipped = [other for other in metadata.get(SKIPPED, ()) if self._reads(other, name)]
            if skipped:
                message += f"\nSkipped because of it: {', '.join(skipped)}."
            yield Incident(
                cause="run failed",
                subject=name,
                reason=error.get("kind", ""),
                message=message,
                run_id=self._run_id,
                at=self._last_evaluation(stream) or at,
                streams=(name,),
            )

    def _unfinished(self, step: str | None, reason: str, error: str, at: float) -> Iterator[Incident]:
        """Yield one incident per pipeline whose streams a step, or a whole run, was to run and did not."""
        done = {event.asset_key for _, event in self._events if is_good(event)}
        unfinished: dict[str, list[str]] = {}
        for _, event in self._of(DagsterEventType.ASSET_MATERIALIZATION_PLANNED):
            key = event.asset_key
            stream = None if key is None or key in done else self._streams.get(key)
            if stream is not None and step in (None, event.step_key):
                name = stream.name
                unfinished.setdefault(name.pipeline, []).append(str(name))
        for pipeline, streams in unfinished.items():
            yield Incident(
                cause="run failed",
                subject=streams[0] if len(streams) == 1 else pipeline,
                reason=reason,
                message=f"The run ended before {pluralize(len(streams), 'stream')} did: {', '.join(streams)}. {error} "
                f"Fix: read the log of run {self._run_id}; the next run continues where this one stopped.",
                run_id=self._run_id,
                at=at,
                streams=tuple(streams),
            )

    def _last_evaluation(self, stream: "Stream") -> float | None:
        """Return when the checks of a stream were evaluated, which is when it ended; the step ends later."""
        times = [
            at
            for at, event in self._of(DagsterEventType.ASSET_CHECK_EVALUATION)
            if self._streams.get(event.asset_check_evaluation_data.asset_key) is stream
        ]
        return max(times, default=None)

    def _reads(self, name: str, other: str) -> bool:
        """Return whether a stream reads another one, directly or through streams in between."""
        stream = self._names.get(name)
        upstreams = [] if stream is None else [str(upstream) for upstream in stream.upstreams]
        return other in upstreams or any(self._reads(upstream, other) for upstream in upstreams)

    def _of(self, kind: DagsterEventType) -> "Iterator[tuple[float, DagsterEvent]]":
        return ((at, event) for at, event in self._events if event.event_type == kind)


def is_good(event: "DagsterEvent") -> bool:
    """Return whether an event shows that a stream's run went well: it was materialized, or there was nothing to do."""
    if event.event_type == DagsterEventType.ASSET_OBSERVATION:
        return IDLE in event.asset_observation_data.asset_observation.metadata
    return event.event_type == DagsterEventType.ASSET_MATERIALIZATION


def _metadata(event: "DagsterEvent") -> dict[str, Any]:
    failure = event.step_failure_data.user_failure_data
    return {} if failure is None else {name: value.value for name, value in failure.metadata.items()}


def _description(event: "DagsterEvent") -> str:
    """Return what a step's failure says: the description of a `Failure`, else the exception."""
    data = event.step_failure_data
    if data.user_failure_data is not None and data.user_failure_data.description:
        return data.user_failure_data.description
    error = data.error and (data.error.cause or data.error)
    return error.message.strip() if error else event.message or ""


def _reason(event: "DagsterEvent") -> str:
    error = event.step_failure_data.error
    return ((error.cause or error).cls_name or "") if error else ""


def _is_check_failure(event: "DagsterEvent") -> bool:
    error = event.step_failure_data.error
    return error is not None and error.cls_name == _CHECK_FAILED

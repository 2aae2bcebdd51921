"""What a channel has been sent (the cursor of the sensor), and what it still has to be sent, in order."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidemill.errors import ConfigurationError
from tidemill.orchestration.alerts.alert import Alert, DeliveryError
from tidemill.orchestration.alerts.incidents import Incident

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidemill.orchestration.alerts.channels import Send
    from tidemill.orchestration.alerts.incident_log import IncidentLog, Recovery


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncident:
    """An incident that was reported and has not recovered.

    Attributes:
        latest: Its latest occurrence, without its message.
        since: When it began, in seconds since the epoch.
        reasons: The kinds of error that were reported; another one is worth another message.
    """

    latest: Incident
    since: float
    reasons: tuple[str, ...]

    def again(self, incident: Incident) -> "OpenIncident":
        """Return it after it has occurred again."""
        streams = tuple(dict.fromkeys((*self.latest.streams, *incident.streams)))
        return OpenIncident(
            latest=replace(incident, message="", streams=streams, at=max(self.latest.at, incident.at)),
            since=min(self.since, incident.at),
            reasons=tuple(dict.fromkeys((*self.reasons, incident.reason))),
        )


@dataclass(slots=True)
class ChannelState:
    """What one channel has been sent.

    Attributes:
        position: The last run whose end was handled; None before the first tick.
        open: The incidents that were reported, by cause.
    """

    position: int | None = None
    open: dict[str, OpenIncident] = field(default_factory=dict)

    def is_news(self, incident: Incident) -> bool:
        """Return whether an incident has not been reported yet."""
        reported = self.open.get(_cause_of(incident))
        return reported is None or incident.reason not in reported.reasons

    def add(self, incident: Incident) -> None:
        """Take in an incident, reported now or before."""
        cause = _cause_of(incident)
        begun = OpenIncident(latest=incident, since=incident.at, reasons=())
        self.open[cause] = self.open.get(cause, begun).again(incident)


def parse(cursor: str | None) -> dict[str, ChannelState]:
    """Return the state of each channel; none where the cursor was reset, or is of another release."""
    try:
        content = json.loads(cursor or "{}")
        return {name: _channel(state) for name, state in content.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def as_cursor(channels: Mapping[str, ChannelState]) -> str:
    """Return the states as the sensor's cursor."""
    content = {
        name: {"position": state.position, "open": [asdict(incident) for incident in state.open.values()]}
        for name, state in channels.items()
    }
    return json.dumps(content, sort_keys=True)


def _channel(content: Mapping[str, Any]) -> ChannelState:
    state = ChannelState(None if content["position"] is None else int(content["position"]))
    for incident in content["open"]:
        latest = Incident(**{**incident["latest"], "streams": tuple(incident["latest"]["streams"])})
        state.open[_cause_of(latest)] = OpenIncident(
            latest=latest, since=float(incident["since"]), reasons=tuple(incident["reasons"])
        )
    return state


def _cause_of(incident: Incident) -> str:
    """Return what makes two incidents the same: the subject, and the check or the run."""
    return f"{incident.subject} {incident.check or ''}"


# A tick of a sensor has 60 s. A channel begins no message after this long, and the slowest message takes 17 s.
BUDGET_SECONDS = 10


class Delivery:
    """One tick of one channel.

    Each message is taken into the state right after it was delivered, so that whatever stops the channel is
    delivered by a later tick, and nothing is delivered twice.

    Args:
        log: The event log.
        send: How the channel delivers an alert.
        state: What the channel has been sent; updated.
    """

    def __init__(self, log: "IncidentLog", send: "Send", target: str, state: ChannelState) -> None:
        self._log = log
        self._send = send
        self._target = target
        self.state = state
        self.sent = 0
        self._deadline = time.monotonic() + BUDGET_SECONDS

    def deliver(self) -> ConfigurationError | DeliveryError | None:
        """Send what there is to send; return the error that stopped it."""
        try:
            self._forget_removed()
            for position, incidents in self._ended():
                for incident in incidents:
                    self._report(incident)
                self.state.position = position
            for cause, reported in list(self.state.open.items()):
                recovery = self._log.recovery(reported.latest)
                if recovery is not None:
                    self._deliver(self._recovered(reported, recovery))
                    del self.state.open[cause]
        except _OutOfTimeError:
            return None
        except (ConfigurationError, DeliveryError) as error:
            return error
        return None

    def _ended(self) -> "Iterator[tuple[int, list[Incident]]]":
        """Yield what has happened since the state's position; without one, what has not recovered."""
        if self.state.position is not None:
            yield from self._log.since(self.state.position)
        else:
            position = self._log.newest_position()
            yield position, self._log.current()

    def _report(self, incident: "Incident") -> None:
        if self.state.is_news(incident):
            self._deliver(self._failed(incident))
        self.state.add(incident)

    def _deliver(self, alert: Alert) -> None:
        if time.monotonic() > self._deadline:
            raise _OutOfTimeError
        self._send(alert)
        self.sent += 1

    def _forget_removed(self) -> None:
        """Forget streams that are no longer declared: nothing could show that they have recovered."""
        for cause, incident in list(self.state.open.items()):
            streams = tuple(name for name in incident.latest.streams if self._log.has_stream(name))
            if streams:
                self.state.open[cause] = replace(incident, latest=replace(incident.latest, streams=streams))
            else:
                del self.state.open[cause]

    def _failed(self, incident: "Incident") -> Alert:
        return Alert(
            event="failed",
            cause=incident.cause,
            target=self._target,
            subject=incident.subject,
            stream=incident.subject if self._log.has_stream(incident.subject) else None,
            check=incident.check,
            message=incident.message,
            run_id=incident.run_id,
            at=_time(incident.at),
        )

    def _recovered(self, reported: OpenIncident, recovery: "Recovery") -> Alert:
        incident = reported.latest
        what = f"The check {incident.check} passes again" if incident.check else "The run succeeded"
        return replace(
            self._failed(incident),
            event="recovered",
            message=f"{what}; it had failed since {_time(reported.since):%Y-%m-%d %H:%M:%S} UTC.",
            run_id=recovery.run_id,
            at=_time(recovery.at),
        )


class _OutOfTimeError(Exception):
    """The time of the tick is used up; the next tick continues."""


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)

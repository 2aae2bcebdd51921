"""What a channel has been sent: the sensor's cursor."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tidemill.orchestration.alerts.incidents import Incident


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

"""What one channel still has to be sent, in order; a message that cannot be delivered stops the channel."""

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidemill.errors import ConfigurationError
from tidemill.orchestration.alerts.alert import Alert
from tidemill.orchestration.alerts.delivery import DeliveryError
from tidemill.orchestration.alerts.state import ChannelState, OpenIncident

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidemill.orchestration.alerts.channels import Send
    from tidemill.orchestration.alerts.incident_log import IncidentLog, Recovery
    from tidemill.orchestration.alerts.incidents import Incident

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

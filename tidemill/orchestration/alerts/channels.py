"""The channels of a target: each delivers an alert or raises, and no error shows a secret."""

from collections.abc import Callable, Mapping

from tidemill.orchestration.alerts.alert import Alert
from tidemill.target.alert_settings import AlertSettings

Send = Callable[[Alert], None]


def channels(settings: AlertSettings) -> Mapping[str, Send]:
    """Return how an alert is sent, by the name of the channel: `webhook`, `email`."""
    from tidemill.orchestration.alerts.mail import send_mail
    from tidemill.orchestration.alerts.webhook import post

    sends: dict[str, Send] = {}
    if (webhook := settings.webhook) is not None:
        sends["webhook"] = lambda alert: post(webhook, alert)
    if settings.email_to:
        sends["email"] = lambda alert: send_mail(settings, alert)
    return sends

"""The channels of a target, a webhook and e-mail: each delivers an alert or raises, and no error shows a secret."""

import json
import logging
import smtplib
import ssl
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tidemill.errors import ConfigurationError
from tidemill.orchestration.alerts.alert import Alert, DeliveryError
from tidemill.target.alerts import AlertSettings
from tidemill.text.secret import Secret

# A sensor's tick has 60 s: three attempts and their pauses take 17 s in the worst case.
_WEBHOOK_SECONDS = 5
PAUSES_SECONDS = (0.5, 1.0)
_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = 500


class _NoRedirects(HTTPRedirectHandler):
    """A redirected POST becomes a GET: the alert would be lost, and the answer would be a success."""

    def redirect_request(self, *_args: object) -> None:
        return None


def post(webhook: "Secret", alert: "Alert") -> None:
    """Send an alert.

    Raises:
        ConfigurationError: The variable is not set, or its value is no address.
        DeliveryError: The server does not answer, or refuses the alert.
    """
    address = webhook.reveal()
    if not _is_http(address):
        raise ConfigurationError(
            f"{' and '.join(webhook.variables)} is not an address that begins with https:// or http://, and "
            f"{webhook.setting} needs one.",
            fix=f"export {webhook.variables[0]}=https://...",
            code="webhook-address-invalid",
        )
    request = Request(  # noqa: S310 - the scheme was verified
        address,
        data=json.dumps(alert.as_json()).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "tidemill"},
        method="POST",
    )
    opener = build_opener(_NoRedirects)
    reason = ""
    for pause in (*PAUSES_SECONDS, None):
        try:
            with opener.open(request, timeout=_WEBHOOK_SECONDS):
                return
        except HTTPError as error:
            error.close()
            reason = f"answers with HTTP status {error.code}"
            if error.code < _SERVER_ERRORS and error.code != _TOO_MANY_REQUESTS:
                break
        except (OSError, HTTPException) as error:
            reason = f"does not answer ({_webhook_fault(error)})"
        if pause is not None:
            time.sleep(pause)
    raise DeliveryError(
        f"The server of {webhook.setting} {reason}.",
        fix=f"Check the address in {webhook.variables[0]} and that this host reaches it.",
    )


def _is_http(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and address.isprintable()
    except ValueError:
        return False


def _webhook_fault(error: OSError | HTTPException) -> str:
    """Return what kind of error it is: its message could have the address in it."""
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, OSError) and reason.errno is not None and reason.errno > 0 and reason.strerror:
        return reason.strerror
    return type(reason).__name__


_MAIL_SECONDS = 10

logger = logging.getLogger(__name__)


def send_mail(settings: "AlertSettings", alert: "Alert") -> None:
    """Send an alert to all addresses.

    Raises:
        ConfigurationError: The variable of a secret is not set.
        DeliveryError: The server does not answer, or refuses the message.
    """
    username, password = _revealed(settings.smtp_username), _revealed(settings.smtp_password)
    server = f"{settings.smtp_host}:{settings.port}"
    try:
        with _connected(settings) as smtp:
            if username and password:
                smtp.login(username, password)
            refused = smtp.send_message(_message(settings, alert))
    except smtplib.SMTPAuthenticationError as error:
        raise DeliveryError(
            f"The mail server {server} refuses the user name and the password (status {error.smtp_code}).",
            fix="Correct smtp_username and smtp_password.",
            code="mail-credentials-refused",
        ) from None
    except smtplib.SMTPRecipientsRefused as error:
        statuses = ", ".join(
            f"{address} (status {status})" for address, (status, _) in error.recipients.items()
        )
        raise DeliveryError(
            f"The mail server {server} refuses every address of email_to: {statuses}.",
            fix="Correct email_to and email_from.",
            code="mail-addresses-refused",
        ) from None
    except (OSError, smtplib.SMTPException) as error:
        raise DeliveryError(
            f"The mail server {server} did not take the e-mail ({_mail_fault(error)}).",
            fix="Check smtp_host, smtp_port and smtp_tls, and that this host reaches the server.",
        ) from None
    for address, (status, _) in refused.items():
        logger.warning(
            "The mail server %s refuses %s (status %s); the others got it.", server, address, status
        )


def _connected(settings: "AlertSettings") -> smtplib.SMTP:
    host = settings.smtp_host or ""
    if settings.tls == "implicit":
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(host, settings.port, timeout=_MAIL_SECONDS, context=context)
    smtp = smtplib.SMTP(host, settings.port, timeout=_MAIL_SECONDS)
    if settings.tls == "starttls":
        try:  # a server that does not offer it is an error: nothing is sent in clear
            smtp.starttls(context=ssl.create_default_context())
        except BaseException:
            smtp.close()
            raise
    return smtp


def _message(settings: "AlertSettings", alert: "Alert") -> EmailMessage:
    sender = settings.email_from or ""
    message = EmailMessage()
    message["Subject"] = alert.title
    message["From"] = sender
    message["To"] = ", ".join(settings.email_to)
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2])
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(f"{alert.title}\n\n{alert.body}\n")
    return message


def _revealed(value: str | Secret | None) -> str | None:
    return value.reveal() if isinstance(value, Secret) else value


def _mail_fault(error: OSError | smtplib.SMTPException) -> str:
    """Return what kind of error it is, without what the server wrote: it may repeat what it was sent."""
    if isinstance(error, smtplib.SMTPResponseException):
        return f"status {error.smtp_code}"
    return error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__


Send = Callable[[Alert], None]


def channels(settings: AlertSettings) -> Mapping[str, Send]:
    """Return how an alert is sent, by the name of the channel: `webhook`, `email`."""
    from tidemill.orchestration.alerts.channels import post, send_mail

    sends: dict[str, Send] = {}
    if (webhook := settings.webhook) is not None:
        sends["webhook"] = lambda alert: post(webhook, alert)
    if settings.email_to:
        sends["email"] = lambda alert: send_mail(settings, alert)
    return sends

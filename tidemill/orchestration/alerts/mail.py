"""E-mail: one message per alert, through a mail server."""

import logging
import smtplib
import ssl
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from typing import TYPE_CHECKING

from tidemill.orchestration.alerts.delivery import DeliveryError
from tidemill.target.secret import Secret

if TYPE_CHECKING:
    from tidemill.orchestration.alerts.alert import Alert
    from tidemill.target.alert_settings import AlertSettings

TIMEOUT_SECONDS = 10

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
            f"The mail server {server} did not take the e-mail ({_kind(error)}).",
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
        return smtplib.SMTP_SSL(host, settings.port, timeout=TIMEOUT_SECONDS, context=context)
    smtp = smtplib.SMTP(host, settings.port, timeout=TIMEOUT_SECONDS)
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


def _kind(error: OSError | smtplib.SMTPException) -> str:
    """Return what kind of error it is, without what the server wrote: it may repeat what it was sent."""
    if isinstance(error, smtplib.SMTPResponseException):
        return f"status {error.smtp_code}"
    return error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__

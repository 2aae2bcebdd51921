"""Where the alerts of a target go: the table `[targets.<name>.alerts]`, and its settings."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from tidemill.target.toml_table import Table
from tidemill.text.secret import VARIABLE, Secret

SmtpTls = Literal["starttls", "implicit", "none"]
_PORTS = {"starttls": 587, "implicit": 465, "none": 25}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """`[targets.<name>.alerts]`.

    Attributes:
        webhook: The address that gets a POST request per alert.
        email_to: The addresses that get an e-mail per alert.
        email_from: The sender's address.
        smtp_host: The mail server.
        smtp_port: Its port; None: 587, or 465 for `implicit`, or 25 for `none`.
        smtp_tls: `starttls`, `implicit` (TLS from the first byte) or `none`; None: `starttls`.
        smtp_username: The user name, if the server needs one.
        smtp_password: The password, if the server needs one.
    """

    webhook: Secret | None = None
    email_to: tuple[str, ...] = ()
    email_from: str | None = None
    smtp_host: str | None = None
    smtp_port: int | None = None
    smtp_tls: SmtpTls | None = None
    smtp_username: str | Secret | None = None
    smtp_password: Secret | None = None

    @property
    def tls(self) -> SmtpTls:
        """How the connection is encrypted."""
        return self.smtp_tls or "starttls"

    @property
    def port(self) -> int:
        """The mail server's port."""
        return self.smtp_port or _PORTS[self.tls]


_ADDRESS = re.compile(r"[^\s@<>,;:\"]+@[^\s@<>,;:\"]+")
LARGEST_PORT = 65_535
_NEEDED_BY = (
    ("email_from", "email_to"),
    ("smtp_host", "email_to"),
    ("smtp_password", "smtp_username"),
    ("smtp_username", "smtp_password"),
)
_OF_EMAIL = ("email_from", "smtp_host", "smtp_port", "smtp_tls", "smtp_username", "smtp_password")


def alert_settings(parent: Table) -> AlertSettings | None:
    """Return where alerts go; None without a table `alerts`. Faults are noted in the table."""
    table = parent.table("alerts")
    if "alerts" not in parent:
        return None
    fields = {
        "webhook": table.secret("webhook"),
        "email_to": table.strings("email_to"),
        "email_from": table.string("email_from"),
        "smtp_host": table.string("smtp_host"),
        "smtp_port": table.integer("smtp_port"),
        "smtp_tls": table.string("smtp_tls", choices=get_args(SmtpTls)),
        "smtp_username": table.string_or_secret("smtp_username"),
        "smtp_password": table.secret("smtp_password"),
    }
    settings = AlertSettings(**{name: value for name, value in fields.items() if value is not None})  # type: ignore[arg-type]
    table.end()
    if "webhook" not in table and "email_to" not in table:
        table.fault("", "needs a webhook or email_to, or both")
    _check_email(table, settings)
    return settings


def _check_email(table: Table, settings: AlertSettings) -> None:
    if "email_to" not in table:
        for key in _OF_EMAIL:
            if key in table:
                table.fault(key, "is for e-mail, and email_to is missing")
        return
    if not settings.email_to:
        table.fault("email_to", "must have at least one address")
    for address in settings.email_to:
        _check_address(table, "email_to", address)
    _check_address(table, "email_from", settings.email_from)
    if settings.port > LARGEST_PORT:
        table.fault("smtp_port", f"is {settings.port}; the largest port is {LARGEST_PORT}")
    for key, other in _NEEDED_BY:
        if other in table and key not in table:
            table.fault(key, f"is missing, and {other} needs it")


def _check_address(table: Table, key: str, address: str | None) -> None:
    # A variable that is not set is an error of this target only, and is reported when the target is used.
    if address is not None and not _ADDRESS.fullmatch(address) and not VARIABLE.search(address):
        table.fault(key, f"is {address!r}; write an address like 'data-team@example.com'")

"""The table `[targets.<name>.alerts]` as settings."""

import re
from typing import get_args

from tidemill.target.alert_settings import AlertSettings, SmtpTls
from tidemill.target.secret import VARIABLE
from tidemill.target.toml_table import Table

_ADDRESS = re.compile(r"[^\s@<>,;:\"]+@[^\s@<>,;:\"]+")
_LARGEST_PORT = 65_535
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
    if settings.port > _LARGEST_PORT:
        table.fault("smtp_port", f"is {settings.port}; the largest port is {_LARGEST_PORT}")
    for key, other in _NEEDED_BY:
        if other in table and key not in table:
            table.fault(key, f"is missing, and {other} needs it")


def _check_address(table: Table, key: str, address: str | None) -> None:
    # A variable that is not set is an error of this target only, and is reported when the target is used.
    if address is not None and not _ADDRESS.fullmatch(address) and not VARIABLE.search(address):
        table.fault(key, f"is {address!r}; write an address like 'data-team@example.com'")

"""Where alerts of a target go."""

from dataclasses import dataclass
from typing import Literal

from tidemill.target.secret import Secret

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

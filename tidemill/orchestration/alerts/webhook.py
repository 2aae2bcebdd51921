"""The webhook: one POST request per alert, with JSON.

It uses the standard library: urllib3 logs the path of each request, which is the secret part of a webhook's address.
"""

import json
import time
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tidemill.errors import ConfigurationError
from tidemill.orchestration.alerts.delivery import DeliveryError

if TYPE_CHECKING:
    from tidemill.orchestration.alerts.alert import Alert
    from tidemill.target.secret import Secret

# A sensor's tick has 60 s: three attempts and their pauses take 17 s in the worst case.
TIMEOUT_SECONDS = 5
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
            with opener.open(request, timeout=TIMEOUT_SECONDS):
                return
        except HTTPError as error:
            error.close()
            reason = f"answers with HTTP status {error.code}"
            if error.code < _SERVER_ERRORS and error.code != _TOO_MANY_REQUESTS:
                break
        except (OSError, HTTPException) as error:
            reason = f"does not answer ({_kind(error)})"
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


def _kind(error: OSError | HTTPException) -> str:
    """Return what kind of error it is: its message could have the address in it."""
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, OSError) and reason.errno is not None and reason.errno > 0 and reason.strerror:
        return reason.strerror
    return type(reason).__name__

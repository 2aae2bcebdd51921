"""What a warm server was started with, compared at every attach: settings, and the versions of what runs it."""

import hashlib
import hmac
import importlib.metadata
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.text.secret import is_secret

_DIGEST = "secret:"


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting in which a server differs from what a run needs.

    Attributes:
        name: The setting.
        server: Its value in the server; None if it is not set there.
        needed: The value that the run needs; None if it needs none.
    """

    name: str
    server: str | None
    needed: str | None

    def __str__(self) -> str:
        if (self.server or self.needed or "").startswith(_DIGEST):
            return f"{self.name} has another value"
        return f"{self.name} is {self.server or 'not set'}, and this run needs {self.needed or 'none'}"


def described(confs: Mapping[str, str], token: str) -> dict[str, str]:
    """Return the settings and versions as the record keeps them.

    Args:
        confs: The confs of the application.
        token: The server's token, the key of the digests of secrets.
    """
    from tidemill.engines.java import find_java

    java = find_java()
    versions = {
        "python": f"{platform.python_version()} in {sys.prefix}",
        "tidemill": importlib.metadata.version("tidemill"),
        "pyspark": importlib.metadata.version("pyspark"),
        "java": f"{java.version} at {java.path}" if java else "none",
    }
    return versions | {
        name: _DIGEST + hmac.digest(token.encode(), value.encode(), hashlib.sha256).hex()
        if is_secret(name)
        else value
        for name, value in confs.items()
    }


def differences(server: Mapping[str, str], needed: Mapping[str, str]) -> tuple[Difference, ...]:
    """Return the settings in which a server differs from what a run needs."""
    names = sorted({*server, *needed})
    return tuple(
        Difference(name, server.get(name), needed.get(name))
        for name in names
        if server.get(name) != needed.get(name)
    )

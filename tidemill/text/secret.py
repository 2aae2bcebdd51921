"""Secrets: which names hold one, and references that are resolved only when a connection is made."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.errors import ConfigurationError

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
MASK = "********"

# What Spark itself redacts (`spark.redaction.regex`), and the keys of object stores, Kafka and encryption.
REDACTED_WORDS = (
    "secret|passw(?:or)?d|passphrase|token|jaas|credential|api[._-]?key|access[._-]?key"
    "|(?:account|private|encryption|provided|keystore)[._-]?key(?![a-z])"
)
# Words that end the name of a conf about a secret: its value is a class, a path, an address or a number.
_DESCRIBES = (
    "provider|class|file|path|location|url|uri|endpoint|enabled|type|mechanism|algorithm|size|length|ratio"
    "|timeout|interval|regex"
)
_SECRET = re.compile(rf"(?:{REDACTED_WORDS})(?!s?[._-]?(?:{_DESCRIBES})\b)", re.IGNORECASE)
_DESCRIPTION = re.compile(
    rf"(?:[._-]|(?<=[a-z])(?=[A-Z]))(?i:{_DESCRIBES})$"
    # Kubernetes: names of secrets, not their values.
    r"|^spark\.kubernetes\.\w+\.(?:secrets|secretKeyRef)\."
)


def is_secret(name: str) -> bool:
    """Return whether a setting of this name holds a secret.

    Args:
        name: A Spark conf, a Hadoop property or a Kafka property, such as `fs.s3a.secret.key`.
    """
    return bool(_SECRET.search(name)) and not _DESCRIPTION.search(name)


@dataclass(frozen=True, slots=True)
class Secret:
    """A string whose `${VAR}` are read from the environment when a connection is made.

    Nothing in it is secret by itself, and printing it shows a mask in place of each variable.

    Attributes:
        template: The string, such as `${KAFKA_PASSWORD}` or `sc://host:15002/;token=${SPARK_TOKEN}`.
        setting: The setting that holds it, for the error about a variable that is not set.
    """

    template: str
    setting: str = field(compare=False)

    def __str__(self) -> str:
        return VARIABLE.sub(MASK, self.template)

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that it needs."""
        return tuple(VARIABLE.findall(self.template))

    def reveal(self) -> str:
        """Return the string with each variable replaced by its value.

        Raises:
            ConfigurationError: A variable is not set.
        """
        return substitute(self.template, os.environ, self.setting)


def revealed(value: str | Secret | None) -> str:
    """Return a string or the value of a secret; empty where there is none.

    Raises:
        ConfigurationError: A variable is not set.
    """
    return value.reveal() if isinstance(value, Secret) else value or ""


def substitute(template: str, environ: Mapping[str, str], setting: str) -> str:
    """Return a string with each `${VAR}` replaced.

    Args:
        template: The string.
        environ: The values.
        setting: The setting that holds the string, for the error.

    Raises:
        ConfigurationError: A variable is not set, or is empty.
    """
    for variable in VARIABLE.findall(template):
        if not environ.get(variable):
            raise ConfigurationError(
                f"{variable} is not set in the environment, and {setting} needs it.",
                fix=f"export {variable}=...",
                code="variable-missing",
            )
    return VARIABLE.sub(lambda match: environ[match[1]], template)


def literal_fault(name: str, value: object) -> str | None:
    """Return why a value cannot be that of a secret setting; None for `${VAR}`. It does not repeat the value.

    Args:
        name: The name of the setting.
    """
    if isinstance(value, str) and VARIABLE.fullmatch(value):
        return None
    variable = re.sub(r"\W+", "_", name).upper()
    return f"takes only a variable of the environment, such as ${{{variable}}}, never the secret"

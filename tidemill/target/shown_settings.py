"""A target's settings as they may be shown: with their origin, and with secrets masked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta

from tidemill.target.alerts import AlertSettings
from tidemill.target.secret import MASK, is_secret
from tidemill.target.spark_settings import SparkSettings
from tidemill.target.target import KafkaCluster
from tidemill.text.durations import format_duration


@dataclass(frozen=True, slots=True)
class Setting:
    """A resolved setting as it may be shown.

    Attributes:
        name: Its name, as a path into the target: `spark.mode`.
        value: Its value; a secret is masked.
        origin: Where it came from.
    """

    name: str
    value: str
    origin: str


def shown(prefix: str, value: SparkSettings | KafkaCluster | AlertSettings) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each field that has one, secrets masked.

    Args:
        prefix: The path of the value in the target: `kafka.default`.
        value: How Spark runs, how a cluster is reached, or where alerts go.
    """
    for field in fields(value):
        content = getattr(value, field.name)
        entries = content if isinstance(content, Mapping) else {"": content}
        for key, entry in entries.items():
            if entry is not None and entry != ():
                name = ".".join(part for part in (prefix, field.name, key) if part)
                literal_secret = isinstance(entry, str) and is_secret(key or field.name)
                yield name, MASK if literal_secret else _text(entry)


def _text(entry: object) -> str:
    if isinstance(entry, tuple):
        return ", ".join(entry)
    return format_duration(entry) if isinstance(entry, timedelta) else str(entry)

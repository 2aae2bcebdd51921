"""The connector of each kind of source, imported when the kind is first used."""

import importlib
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from tidemill.connectors.backlog import Backlog
from tidemill.connectors.connector import Connector, Reading
from tidemill.definitions.source import Source

if TYPE_CHECKING:
    from tidemill.target.target import Target

_CONNECTORS = {
    "delta": "tidemill.connectors.delta.connector:DeltaConnector",
    "feed": "tidemill.connectors.feed:FeedConnector",
    "file": "tidemill.connectors.files.connector:FileConnector",
    "kafka": "tidemill.connectors.kafka.connector:KafkaConnector",
    "rate": "tidemill.connectors.rate.connector:RateConnector",
}


def kinds() -> tuple[str, ...]:
    """Return the names of all kinds of sources."""
    return tuple(_CONNECTORS)


@cache
def connector_of_kind(kind: str) -> Connector[Any]:
    """Return the connector of a kind of source."""
    module, _, name = _CONNECTORS[kind].partition(":")
    connector: Connector[Any] = getattr(importlib.import_module(module), name)()
    return connector


def resolved(source: Source, target: "Target") -> tuple[Connector[Any], Source]:
    """Return a source as a target binds it, with its connector.

    Raises:
        ConfigurationError: The target does not bind it.
    """
    bound = connector_of(source).bound(source, target)
    return connector_of(bound), bound


def backlog_of(source: Source, reading: Reading) -> Backlog:
    """Return the backlog of a source that streams; raises what `Connector.backlog` and `resolved` raise."""
    connector, bound = resolved(source, reading.target)
    if reading.offset is not None and reading.offset.raw is None:
        reading = replace(reading, offset=None)
    return connector.backlog(bound, reading)


def connector_of(source: Source) -> Connector[Any]:
    """Return the connector of a source."""
    return connector_of_kind(source.kind)

"""The connector of each kind of source, imported when the kind is first used."""

import importlib
from functools import cache
from typing import Any

from tidemill.connectors.connector import Connector
from tidemill.definitions.source import Source

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


def connector_of(source: Source) -> Connector[Any]:
    """Return the connector of a source."""
    return connector_of_kind(source.kind)

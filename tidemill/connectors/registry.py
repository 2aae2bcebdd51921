"""The connector of each kind of source, imported when the kind is first used, and what is asked by the kind."""

import importlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from tidemill.checkpoint import SourceOffset
from tidemill.checkpoint.positions import Position, Recognizer
from tidemill.connectors.backlog import Backlog
from tidemill.connectors.connector import Connector, Reading
from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.source import Source

if TYPE_CHECKING:
    from tidemill.connectors.connector import Binding
    from tidemill.target.target import Target

_CONNECTORS = {
    "delta": "tidemill.connectors.delta.connector:DeltaConnector",
    "feed": "tidemill.connectors.feed:FeedConnector",
    "file": "tidemill.connectors.files.connector:FileConnector",
    "jdbc": "tidemill.connectors.jdbc.connector:JdbcConnector",
    "kafka": "tidemill.connectors.kafka.connector:KafkaConnector",
    "rate": "tidemill.connectors.rate.connector:RateConnector",
    "spark": "tidemill.connectors.spark.connector:SparkConnector",
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


def recognize(offset: SourceOffset) -> Position:
    """Return the position in an offset of a checkpoint about whose sources nothing is recorded."""
    positions = (connector_of_kind(kind).parse(offset) for kind in kinds())
    return next((position for position in positions if position is not None), Position())


def recognizer(records: Mapping[str, SourceRecord]) -> Recognizer:
    """Return what gives the position in an offset: the recorded kind of its source, or else whichever knows it.

    Args:
        records: What the manifest records about the sources, by name.
    """

    def position_of(offset: SourceOffset) -> Position:
        record = records.get(offset.key)
        if record is None or record.kind is None:
            return recognize(offset)
        return connector_of_kind(record.kind).parse(offset) or Position()

    return position_of


def binding_of(source: "Source", target: "Target") -> "Binding | None":
    """Return what a source reads in a target; None for tables, and where only Spark knows it.

    Raises:
        TransientError: The cluster does not answer.
        TerminalError: The cluster refuses this user, or has no such topic.
        ConfigurationError: The target does not bind the feed.
    """
    connector, bound = resolved(source, target)
    return connector.binding(bound, target)


def difference(recorded: "Binding", now: "Binding", source: "Source", target: "Target") -> str | None:
    """Return how a binding differs from the recorded one, as half a sentence; None where it is the same.

    Args:
        recorded: The binding that the checkpoint continues.
        now: The binding that the target gives.
    """
    if recorded["kind"] == now["kind"]:
        connector, bound = resolved(source, target)
        return connector.difference(bound, recorded, now)
    return f"reads {describe(now)}, and its checkpoint continues {describe(recorded)}"


def describe(binding: "Binding") -> str:
    """Return a binding for people."""
    return connector_of_kind(binding["kind"]).describe_binding(binding)

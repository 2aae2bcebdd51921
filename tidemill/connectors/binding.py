"""The identity of what a source reads, such as a folder, or the topics of a Kafka cluster, however it is written.

A binding is plain data with the kind of the source, recorded in the manifest. It is read once per run, without a JVM.
Tables of Delta need none, because their id is part of every offset.
"""

from typing import TYPE_CHECKING

from tidemill.connectors.registry import connector_of_kind, resolved

if TYPE_CHECKING:
    from tidemill.connectors.connector import Binding
    from tidemill.definitions.source import Source
    from tidemill.target.target import Target


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

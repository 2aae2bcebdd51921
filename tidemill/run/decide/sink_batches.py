"""The newest batch of a stream's query in a sink that is no table, without Spark."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.definitions.sink import Sink
    from tidemill.records.check_state import Position
    from tidemill.records.stream_records import Snapshot
    from tidemill.target.target import Target


def newest_batch(sink: "Sink", target: "Target", snapshot: "Snapshot") -> int | None:
    """Return the newest batch that a sink has; None where it has none, or does not know it.

    Raises:
        TidemillError: The sink does not answer, or the target lacks what it needs.
        OSError: Its files cannot be read.
        ValueError: They are damaged.
    """
    if snapshot.query_id is None:
        return None
    context = snapshot.records.sink_context(sink.name, sink.connection(target))
    return sink.last_batch(context, snapshot.query_id)


def is_behind(sink: "Sink", newest: int | None, position: "Position | None") -> bool:
    """Return whether a sink has lost batches that the last check has seen there.

    Args:
        newest: The newest batch that it has.
        position: What the last check has compared.
    """
    known = None if position is None else position.sinks.get(sink.name)
    if known is None or (newest is None and sink.forgets_batches):
        return False
    return newest is None or newest < known

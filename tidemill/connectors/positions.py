"""The position in an offset: the kinds of sources are asked whether they know it."""

from collections.abc import Mapping

from tidemill.checkpoint import SourceOffset
from tidemill.checkpoint.positions import Position, Recognizer
from tidemill.connectors.registry import connector_of_kind, kinds
from tidemill.connectors.source_record import SourceRecord


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

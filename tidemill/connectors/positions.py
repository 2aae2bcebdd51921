"""The position in an offset: the kinds of sources are asked whether they know it."""

from tidemill.checkpoint import SourceOffset
from tidemill.checkpoint.positions import Position
from tidemill.connectors.registry import connector_of_kind, kinds


def recognize(offset: SourceOffset) -> Position:
    """Return the position in an offset of a checkpoint about whose sources nothing is recorded."""
    positions = (connector_of_kind(kind).parse(offset) for kind in kinds())
    return next((position for position in positions if position is not None), Position())

"""Where a stream starts after a reset: the ends of its sources now, or offsets that a person names."""

import json
from typing import TYPE_CHECKING

from tidemill.connectors.answers import Start
from tidemill.connectors.connector import Reading
from tidemill.connectors.registry import resolved
from tidemill.errors import ConfigurationError, TerminalError
from tidemill.run.decide.sources import streaming_sources

if TYPE_CHECKING:
    from tidemill.checkpoint import OffsetEntry
    from tidemill.definitions.source import Source
    from tidemill.definitions.stream import Stream
    from tidemill.target.target import Target


def ends_now(stream: "Stream", target: "Target", entry: "OffsetEntry") -> dict[str, Start]:
    """Return the ends of all sources of a stream, by name.

    Args:
        entry: The offsets up to which the stream has read.

    Raises:
        TransientError: A cluster does not answer.
        TerminalError: A table does not exist.
    """
    try:
        return {
            name: _end(source, Reading(target=target, name=name, offset=entry.source(name)))
            for name, source in streaming_sources(stream).items()
        }
    except TerminalError as error:
        raise error.of(stream.name) from None


def named(stream: "Stream", target: "Target", entry: "OffsetEntry", text: str) -> dict[str, Start]:
    """Return the starts that a person names: `{"events": {"orders": {"0": 120}}, "rows": 17}`.

    A topic has offsets by partition, a table a version. A source that is not named keeps its position.

    Args:
        entry: The offsets up to which the stream has read.
        text: JSON.

    Raises:
        ConfigurationError: It is no such JSON.
        TerminalError: A name is not that of a source, or an offset is not of its kind.
    """
    try:
        wanted = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(
            f"--from is {text!r}, which is neither earliest, now nor JSON: {error}.", code="argument-invalid"
        ) from None
    if not isinstance(wanted, dict):
        raise ConfigurationError(
            f"--from is {text!r}: give an object with an offset per source.", code="argument-invalid"
        )
    sources = streaming_sources(stream)
    if unknown := sorted(set(wanted) - set(sources)):
        raise TerminalError(
            f"it has no source {unknown[0]!r}.",
            stream=stream.name,
            fix=f"name {', '.join(sources)}.",
            code="source-not-declared",
        )
    starts = {}
    for name in sources:
        offset = entry.source(name)
        connector, _ = resolved(sources[name], target)
        reading = Reading(target=target, name=name, offset=offset)
        if name in wanted and (offset is None or offset.raw is None):
            raise TerminalError(
                f"its source {name!r} was never read.",
                stream=stream.name,
                fix="run the stream first.",
                code="source-never-read",
            )
        try:
            if name in wanted:
                starts[name] = connector.start_at(reading, wanted[name])
            elif offset is not None and offset.raw is not None:
                starts[name] = connector.start_where_it_is(reading, offset.raw)
        except TerminalError as error:
            raise error.of(stream.name) from None
    return starts


def _end(source: "Source", reading: Reading) -> Start:
    connector, bound = resolved(source, reading.target)
    return connector.now(bound, reading)

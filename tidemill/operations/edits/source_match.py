"""The sources in a checkpoint against those of a stream: by name, or by what each has read."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemill.connectors.connector import Reading
from tidemill.connectors.registry import connector_of_kind, kinds, recognize, resolved
from tidemill.definitions.source import Source
from tidemill.errors import TerminalError
from tidemill.run.decide.sources import streaming_sources
from tidemill.storage.store import Store
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checkpoint import OffsetEntry
    from tidemill.definitions.stream import Stream
    from tidemill.target.target import Target


def names_of_sources(
    stream: "Stream", target: "Target", checkpoint: Store, entry: "OffsetEntry"
) -> Mapping[str, str]:
    """Return the names of a stream's sources by their names, or positions, in a checkpoint.

    A checkpoint of version 1 identifies sources by their position in the plan, which no definition shows. What each
    source has read does: the id of a table, topics, or the folder of files.

    Args:
        entry: An entry of its offset log.

    Raises:
        TerminalError: A source fits none of the stream's, or several.
    """
    declared = streaming_sources(stream)
    names = {}
    for offset in entry.sources:
        reading = Reading(target=target, name=offset.key, offset=offset, checkpoint=checkpoint)
        fitting = [name for name, source in declared.items() if _fits(source, reading)]
        if offset.name is not None:
            fitting = [offset.name] if offset.name in fitting else []
        if len(fitting) != 1:
            which = "none of the stream's sources" if not fitting else f"each of {', '.join(fitting)}"
            raise TerminalError(
                f"source {offset.key!r} of the checkpoint has read {_read(reading)}, and that fits {which}.",
                stream=stream.name,
                fix="declare the sources as the query read them: the same folders, topics and tables.",
                code="adopt-sources-differ",
            )
        names[offset.key] = fitting[0]
    if sorted(names.values()) != sorted(declared):
        missing = sorted(set(declared).difference(names.values()))
        raise TerminalError(
            f"the checkpoint has {pluralize(len(entry.sources), 'source')}, and no position of its own for each of the "
            f"stream's ({', '.join(missing) or 'one fits two'}).",
            stream=stream.name,
            fix="declare exactly the sources that the query read.",
            code="adopt-sources-differ",
        )
    return names


def _fits(source: Source, reading: Reading) -> bool:
    connector, bound = resolved(source, reading.target)
    return connector.fits(bound, reading)


def _read(reading: Reading) -> str:
    """Return what a source has read, for people."""
    assert reading.offset is not None  # noqa: S101 - it is that of an entry
    has_read = (connector_of_kind(kind).has_read(reading) for kind in kinds())
    kind = recognize(reading.offset).kind
    unknown = "nothing" if reading.offset.raw is None else f"a source of the kind {kind!r}"
    return next(filter(None, has_read), unknown)

"""The sources in a checkpoint against those of a stream: by name, or by what each has read."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.connectors.binding import kafka_of
from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.delta.source import DeltaSource
from tidemill.connectors.feed import Feed
from tidemill.connectors.files.backlog import logged_files, plain_path
from tidemill.connectors.files.position import FilePosition
from tidemill.connectors.files.source import FileSource
from tidemill.connectors.kafka.position import TopicPosition
from tidemill.connectors.positions import recognize
from tidemill.definitions.source import Source, StreamTable
from tidemill.errors import TerminalError
from tidemill.run.decide.sources import streaming_sources
from tidemill.storage import delta_log
from tidemill.target.target import FolderBinding
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checkpoint import OffsetEntry, SourceOffset
    from tidemill.definitions.stream import Stream
    from tidemill.target.target import Target

_GLOB = "*?[{"


def names_of_sources(
    stream: "Stream", target: "Target", checkpoint: Path, entry: "OffsetEntry"
) -> Mapping[str, str]:
    """Return the names of a stream's sources by their names, or positions, in a checkpoint.

    A checkpoint of version 1 identifies sources by their position in the plan, which no definition shows. What each
    source has read does: the id of a table, topics, or the folder of files.

    Args:
        stream: The stream.
        target: The target.
        checkpoint: The checkpoint's folder.
        entry: An entry of its offset log.

    Raises:
        TerminalError: A source fits none of the stream's, or several.
    """
    declared = streaming_sources(stream)
    names = {}
    for offset in entry.sources:
        fitting = [name for name, source in declared.items() if _fits(source, target, checkpoint, offset)]
        if offset.name is not None:
            fitting = [offset.name] if offset.name in fitting else []
        if len(fitting) != 1:
            which = "none of the stream's sources" if not fitting else f"each of {', '.join(fitting)}"
            raise TerminalError(
                f"source {offset.key!r} of the checkpoint has read {_read(checkpoint, offset)}, and that fits {which}.",
                stream=stream.name,
                fix="declare the sources as the query read them: the same folders, topics and tables.",
            )
        names[offset.key] = fitting[0]
    if sorted(names.values()) != sorted(declared):
        missing = sorted(set(declared).difference(names.values()))
        raise TerminalError(
            f"the checkpoint has {pluralize(len(entry.sources), 'source')}, and no position of its own for each of the "
            f"stream's ({', '.join(missing) or 'one fits two'}).",
            stream=stream.name,
            fix="declare exactly the sources that the query read.",
        )
    return names


def _fits(source: Source, target: "Target", checkpoint: Path, offset: "SourceOffset") -> bool:
    match recognize(offset):
        case DeltaPosition() as at:
            table = _table(source, target)
            opened = None if table is None else delta_log.open_table(table)
            return opened is not None and str(opened.metadata().id) == at.reservoir_id
        case TopicPosition() as at:
            try:
                kafka, _ = kafka_of(source, target)
            except TypeError:
                return False
            return bool(kafka.subscribe_pattern) or set(at.partitions) <= {
                *kafka.subscribe,
                *kafka.assign,
            }
        case FilePosition():
            folder = _folder(source, target)
            read = (plain_path(file.path) for file in logged_files(checkpoint, offset.key))
            return folder is not None and all(path.startswith(f"{folder}/") for path in read)
    return False


def _table(source: Source, target: "Target") -> Path | None:
    if isinstance(source, StreamTable):
        return target.lake.table(source.stream)
    return Path(source.path) if isinstance(source, DeltaSource) else None


def _folder(source: Source, target: "Target") -> str | None:
    """Return the folder of a file source, up to the first pattern in it."""
    path = None
    if isinstance(source, FileSource):
        path = source.path
    elif isinstance(source, Feed) and isinstance(bound := target.binding(source.name), FolderBinding):
        path = str(bound.path)
    if path is None:
        return None
    parts = plain_path(path).rstrip("/").split("/")
    patterns = (number for number, part in enumerate(parts) if any(sign in part for sign in _GLOB))
    return "/".join(parts[: next(patterns, len(parts))])


def _read(checkpoint: Path, offset: "SourceOffset") -> str:
    """Return what a source has read, for people."""
    match recognize(offset):
        case DeltaPosition() as at:
            return f"the Delta table with the id {at.reservoir_id}"
        case TopicPosition() as at:
            return f"the topics {', '.join(at.partitions)}"
        case FilePosition():
            first = next((plain_path(file.path) for file in logged_files(checkpoint, offset.key)), "no file")
            return f"files such as {first}"
        case position:
            return "nothing" if offset.raw is None else f"a source of the kind {position.kind!r}"

"""What the sources of a stream no longer have, of what the stream has read: found before anything is written."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from tidemill.connectors.binding import kafka_of
from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.files.backlog import logged_files, plain_path
from tidemill.connectors.files.position import FilePosition
from tidemill.connectors.kafka.position import TopicPosition
from tidemill.operations.generations.table_versions import missing_files as missing_in_version
from tidemill.run.decide.sources import streaming_sources
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checkpoint import SourceFile
    from tidemill.definitions.source import Source
    from tidemill.definitions.stream import Stream
    from tidemill.operations.replay.source_span import SourceSpan
    from tidemill.records.stream_records import Snapshot
    from tidemill.target.target import Target

_MOST_NAMED = 3
_NONE: "Mapping[str, SourceSpan]" = MappingProxyType({})


def missing_in_sources(
    stream: "Stream",
    target: "Target",
    snapshot: "Snapshot",
    spans: "Mapping[str, SourceSpan]" = _NONE,
) -> tuple[str, ...]:
    """Return what the sources no longer have of what a stream has read, a sentence each.

    The table of another stream, or any Delta table, is read as it is now, so nothing of it is missing.

    Args:
        stream: The stream.
        target: The target.
        snapshot: Its records.
        spans: The sources of which only a part is read.

    Raises:
        TransientError: A cluster does not answer.
    """
    return tuple(_sentences(stream, target, snapshot, spans))


def removed_versions(
    stream: "Stream", target: "Target", snapshot: "Snapshot", spans: "Mapping[str, SourceSpan]"
) -> tuple[str, ...]:
    """Return the tables whose version at a stream's position VACUUM has removed, a sentence each.

    Args:
        stream: The stream.
        target: The target.
        snapshot: Its records.
        spans: The sources of which only a part is read: the files of such a table were looked for.
    """
    entry, sentences = snapshot.tail.latest_offset, []
    for name, source in streaming_sources(stream).items():
        offset = None if entry is None else entry.source(name)
        at = DeltaPosition.of(offset)
        if at is None or source.upstream is None:
            continue
        if name in spans and spans[name].is_part:
            continue
        version = at.version - (not at.is_starting)
        files = missing_in_version(target.lake.table(source.upstream), version)
        if files is None or files:
            what = "its log" if files is None else pluralize(len(files), "file")
            sentences.append(
                f"Version {version} of {source.upstream} cannot be read any more: {what} is missing."
            )
    return tuple(sentences)


def missing_files(source: "Source", files: "Iterable[SourceFile]") -> tuple[str, ...]:
    """Return the sentence that files of a source are missing; none where none is.

    Args:
        source: The source.
        files: Files that it has read.
    """
    paths = {plain_path(file.path) for file in files}
    missing = sorted(path for path in paths if not Path(path).exists())
    if not missing:
        return ()
    named = ", ".join(Path(path).name for path in missing[:_MOST_NAMED])
    more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
    return (f"{pluralize(len(missing), 'file')} of {source.describe()} are missing: {named}{more}.",)


def _sentences(
    stream: "Stream", target: "Target", snapshot: "Snapshot", spans: "Mapping[str, SourceSpan]"
) -> Iterator[str]:
    entry = snapshot.tail.latest_offset
    for name, source in streaming_sources(stream).items():
        offset = None if entry is None else entry.source(name)
        if offset is None or offset.raw is None:
            continue
        if name in spans and spans[name].is_part:
            yield from spans[name].missing
        elif FilePosition.of(offset) is not None:
            yield from missing_files(source, logged_files(snapshot.checkpoint, name))
        elif (position := TopicPosition.of(offset)) is not None:
            yield from _removed_messages(source, target, position)


def _removed_messages(source: "Source", target: "Target", position: TopicPosition) -> Iterator[str]:
    """Yield the partitions whose first messages are missing."""
    # librdkafka is loaded only where a topic is read.
    from tidemill.connectors.kafka.backlog import partitions_of, topics_of
    from tidemill.connectors.kafka.client import client_of

    kafka, cluster = kafka_of(source, target)
    client = client_of(cluster)
    partitions = partitions_of(kafka, topics_of(kafka, client, cluster) or {}, cluster)
    begins, _ = client.offsets(partitions, committed=False)
    for (topic, number), at in position.by_partition.items():
        begin = begins.get((topic, number), at)
        if begin > 0 and at > 0:
            yield f"Messages 0 to {min(begin, at) - 1} of {topic}-{number} are missing."

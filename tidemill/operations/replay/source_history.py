"""What the sources of a stream no longer have, of what the stream has read: found before anything is written."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from tidemill.connectors.connector import Reading
from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.registry import resolved
from tidemill.operations.generations.table_versions import missing_files as missing_in_version
from tidemill.run.decide.sources import streaming_sources
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.connectors.answers import SourceSpan
    from tidemill.definitions.stream import Stream
    from tidemill.records.stream_records import Snapshot
    from tidemill.target.target import Target

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
        spans: The sources of which only a part is read: the files of such a table were looked for.
    """
    sentences = []
    for name, source in streaming_sources(stream).items():
        at = DeltaPosition.of(snapshot.tail.planned(name))
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


def _sentences(
    stream: "Stream", target: "Target", snapshot: "Snapshot", spans: "Mapping[str, SourceSpan]"
) -> Iterator[str]:
    for name, source in streaming_sources(stream).items():
        offset = snapshot.tail.planned(name)
        if offset is None or offset.raw is None:
            continue
        if name in spans and spans[name].is_part:
            yield from spans[name].missing
        else:
            connector, bound = resolved(source, target)
            reading = Reading(target=target, name=name, offset=offset, checkpoint=snapshot.checkpoint)
            yield from connector.missing(bound, reading)

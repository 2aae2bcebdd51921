"""Where a stream starts after a reset: the ends of its sources now, or offsets that a person names."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.checkpoint import SourceFile
from tidemill.connectors.binding import binding_of, kafka_of
from tidemill.connectors.delta.position import DeltaPosition, at_version
from tidemill.connectors.delta.source import DeltaSource
from tidemill.connectors.files.backlog import file_address, listed_files
from tidemill.connectors.files.position import FilePosition
from tidemill.connectors.files.source import FileSource
from tidemill.connectors.kafka.position import TopicPosition
from tidemill.connectors.positions import recognize
from tidemill.definitions.source import StreamTable
from tidemill.errors import ConfigurationError, TerminalError
from tidemill.run.decide.sources import streaming_sources
from tidemill.storage import delta_log
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checkpoint import OffsetEntry, SourceOffset
    from tidemill.definitions.source import Source
    from tidemill.definitions.stream import Stream
    from tidemill.target.target import Target

_FIRST_ENTRY = json.dumps({"logOffset": 0}, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where one source starts.

    Attributes:
        offset: The offset up to which it counts as read, as Spark writes it.
        files: The files that count as read, of a folder.
        skipped: What is never read, for people; empty where nothing is.
        doubled: What is read a second time; empty where nothing is.
    """

    offset: str
    files: tuple[SourceFile, ...] = ()
    skipped: str = ""
    doubled: str = ""


def ends_now(stream: "Stream", target: "Target", entry: "OffsetEntry") -> dict[str, Start]:
    """Return the ends of all sources of a stream, by name.

    Args:
        stream: The stream.
        target: The target.
        entry: The offsets up to which the stream has read.

    Raises:
        TransientError: A cluster does not answer.
        TerminalError: A table does not exist.
    """
    return {
        name: _end(stream, source, target, entry.source(name))
        for name, source in streaming_sources(stream).items()
    }


def named(stream: "Stream", entry: "OffsetEntry", text: str) -> dict[str, Start]:
    """Return the starts that a person names: `{"events": {"orders": {"0": 120}}, "rows": 17}`.

    A topic has offsets by partition, a table a version. A source that is not named keeps its position.

    Args:
        stream: The stream.
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
            f"--from is {text!r}, which is neither earliest, now nor JSON: {error}."
        ) from None
    if not isinstance(wanted, dict):
        raise ConfigurationError(f"--from is {text!r}: give an object with an offset per source.")
    sources = streaming_sources(stream)
    if unknown := sorted(set(wanted) - set(sources)):
        raise _refused(stream, f"it has no source {unknown[0]!r}.", f"name {', '.join(sources)}.")
    starts = {}
    for name in sources:
        offset = entry.source(name)
        if name in wanted:
            starts[name] = _named(stream, name, offset, wanted[name])
        elif offset is not None and offset.raw is not None:
            if FilePosition.of(offset) is not None:
                raise _refused(
                    stream,
                    f"its source {name!r} is a folder, whose files have no offsets.",
                    "give --from now.",
                )
            starts[name] = Start(offset=offset.raw)
    return starts


def _end(stream: "Stream", source: "Source", target: "Target", offset: "SourceOffset | None") -> Start:
    if isinstance(source, DeltaSource | StreamTable):
        table = Path(source.path) if isinstance(source, DeltaSource) else target.lake.table(source.stream)
        opened = delta_log.open_table(table)
        if opened is None:
            raise _refused(stream, f"{source.describe()} does not exist.", f"tidemill run +{stream.name}")
        at = DeltaPosition.of(offset)
        begin = 0 if at is None else at.version
        unread = opened.version() + 1 - begin
        fields = {
            "sourceVersion": 1,
            "reservoirId": str(opened.metadata().id),
            "reservoirVersion": opened.version() + 1,
            "index": -1,
            "isStartingVersion": False,
        }
        skipped = f"versions {begin} to {opened.version()} of {source.describe()}" if unread > 0 else ""
        return Start(offset=_json(fields), skipped=skipped)
    binding = binding_of(source, target)
    if binding is not None and binding["kind"] == "folder":
        return _end_of_folder(source, binding["path"])
    return _end_of_topics(source, target, offset)


def _end_of_folder(source: "Source", path: str) -> Start:
    options = source.options if isinstance(source, FileSource) else {}
    paths = sorted(listed_files(path, options))
    files = tuple(
        SourceFile(file_address(path), os.stat(path).st_mtime_ns // 1_000_000, 0)  # noqa: PTH116 - many files
        for path in paths
    )
    skipped = f"those of {pluralize(len(files), 'file')} of {source.describe()} that no batch has read"
    return Start(offset=_FIRST_ENTRY, files=files, skipped=skipped)


def _end_of_topics(source: "Source", target: "Target", offset: "SourceOffset | None") -> Start:
    # librdkafka is loaded only where a topic is read.
    from tidemill.connectors.kafka.backlog import committed_only, partitions_of, topics_of
    from tidemill.connectors.kafka.client import client_of

    kafka, cluster = kafka_of(source, target)
    client = client_of(cluster)
    partitions = partitions_of(kafka, topics_of(kafka, client, cluster) or {}, cluster)
    _, ends = client.offsets(partitions, committed=committed_only(kafka, cluster))
    position = TopicPosition.of(offset)
    read = {} if position is None else position.by_partition
    by_topic: dict[str, dict[str, int]] = {}
    unread = 0
    for (topic, number), end in sorted(ends.items()):
        by_topic.setdefault(topic, {})[str(number)] = end
        unread += end - read.get((topic, number), 0)
    return Start(
        offset=_json(by_topic),
        skipped=f"{pluralize(unread, 'message')} of {source.describe()}" if unread else "",
    )


def _named(stream: "Stream", name: str, offset: "SourceOffset | None", value: Any) -> Start:
    if offset is None or offset.raw is None:
        raise _refused(stream, f"its source {name!r} was never read.", "run the stream first.")
    if (at := DeltaPosition.of(offset)) is not None:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise _refused(
                stream, f"its source {name!r} is a table, and {value!r} is no version.", "give a number."
            )
        now = at.version
        skipped = f"versions {now} to {value - 1} of {name}" if value > now else ""
        doubled = f"versions {value} to {now - 1} of {name}" if value < now else ""
        return Start(offset=at_version(offset.raw, value), skipped=skipped, doubled=doubled)
    position = TopicPosition.of(offset)
    if position is None or not isinstance(value, Mapping):
        raise _refused(
            stream,
            f"its source {name!r} is of the kind {recognize(offset).kind!r}, which has no such offsets.",
            "give offsets by topic and partition, or a version of a table; or --from now.",
        )
    skipped_messages = doubled_messages = 0
    merged: dict[str, dict[str, int]] = {
        topic: {str(number): at for number, at in numbers.items()}
        for topic, numbers in position.partitions.items()
    }
    for topic, numbers in value.items():
        for number, at in numbers.items() if isinstance(numbers, Mapping) else ():
            before = merged.get(topic, {}).get(str(number))
            if before is None or not isinstance(at, int) or at < 0:
                raise _refused(
                    stream, f"{topic}-{number} is no partition that it reads.", "correct the offsets."
                )
            skipped_messages += max(0, at - before)
            doubled_messages += max(0, before - at)
            merged[topic][str(number)] = at
    return Start(
        offset=_json(merged),
        skipped=f"{pluralize(skipped_messages, 'message')} of {name}" if skipped_messages else "",
        doubled=f"{pluralize(doubled_messages, 'message')} of {name}" if doubled_messages else "",
    )


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _refused(stream: "Stream", what: str, fix: str) -> TerminalError:
    return TerminalError(what, stream=stream.name, fix=fix)

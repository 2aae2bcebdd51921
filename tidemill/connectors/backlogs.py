"""The backlog of any source."""

from pathlib import Path

from tidemill.checkpoint import SourceOffset
from tidemill.connectors.backlog import Backlog
from tidemill.connectors.binding import binding_of, relocation_of
from tidemill.connectors.delta.backlog import TableReading, waiting_versions
from tidemill.connectors.delta.source import DeltaSource
from tidemill.connectors.feed import Feed
from tidemill.connectors.files.backlog import waiting_files
from tidemill.connectors.files.source import FileSource
from tidemill.connectors.kafka.source import KafkaSource
from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.source import Source, StreamTable
from tidemill.target.target import FolderBinding, KafkaCluster, Target


def backlog_of(
    source: Source,
    offset: SourceOffset | None,
    *,
    checkpoint: Path | None,
    name: str,
    target: Target,
    record: SourceRecord | None = None,
) -> Backlog:
    """Return the backlog of a source.

    Args:
        source: A source that streams.
        offset: The position up to which the checkpoint has read it; None before the first batch.
        checkpoint: The checkpoint's folder, where the file source keeps which files it has read; None
            before the first run.
        name: The source's name in the checkpoint.
        target: The target.
        record: What the manifest records about the source.

    Raises:
        TransientError: The source cannot be reached now.
        TerminalError: There is no such folder, topic or table, or this user may not read it.
        DataLossError: It no longer has the data that comes next.
        ConfigurationError: The target does not bind it.
    """
    at = None if offset is None or offset.raw is None else offset
    record = record or SourceRecord()
    match source:
        case Feed():
            binding = target.binding(source.name)
            if isinstance(binding, FolderBinding):
                return waiting_files(
                    str(binding.path),
                    at,
                    checkpoint=checkpoint,
                    name=name,
                    what=source.describe(),
                    relocation=relocation_of(record.binding, binding_of(source, target)),
                )
            topic = KafkaSource(subscribe=(binding.topic,))
            return _waiting_messages(topic, at, binding.cluster, checkpoint, name)
        case FileSource():
            return waiting_files(
                source.path,
                at,
                checkpoint=checkpoint,
                name=name,
                what=source.describe(),
                options=source.options,
                relocation=relocation_of(record.binding, binding_of(source, target)),
            )
        case KafkaSource():
            return _waiting_messages(source, at, target.cluster(source.cluster), checkpoint, name)
        case DeltaSource():
            reading = TableReading(changes=source.mode == "changes", options=source.options, snapshot=True)
            return waiting_versions(Path(source.path), at, what=source.describe(), reading=reading)
        case StreamTable():
            reading = TableReading(
                changes=source.mode == "changes",
                guarded=source.mode == "append",
                accepted=record.accepted_versions,
                snapshot=record.start == "snapshot",
            )
            return waiting_versions(
                target.lake.table(source.stream), at, what=source.describe(), reading=reading
            )
    raise TypeError(f"{source!r} is no source that streams")


def _waiting_messages(
    source: KafkaSource,
    offset: SourceOffset | None,
    cluster: KafkaCluster,
    checkpoint: Path | None,
    name: str,
) -> Backlog:
    # librdkafka is loaded only where a topic is read.
    from tidemill.connectors.kafka.backlog import waiting_messages

    return waiting_messages(source, offset, cluster, checkpoint=checkpoint, name=name)

"""The files of a batch that must be repeated: they may have been removed since it was planned.

Spark leaves out a planned file that is missing, without an error, and commits the batch.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from tidemill.connectors.binding import relocation_of
from tidemill.connectors.files.backlog import logged_files, plain_path
from tidemill.connectors.files.position import FilePosition
from tidemill.connectors.files.source import FileSource
from tidemill.connectors.source_record import SourceRecord
from tidemill.errors import DataLossError
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.records.stream_records import Snapshot


def check_planned_files(stream: "Stream", snapshot: "Snapshot", sources: Mapping[str, SourceRecord]) -> None:
    """Check that every file of a batch that must be repeated is there.

    Args:
        stream: The stream.
        snapshot: Its records.
        sources: The records of its sources, with the folders of this run.

    Raises:
        DataLossError: A file is missing.
    """
    start = snapshot.tail.next_start
    if start.kind != "repeat_batch":
        return
    names = [name for name, source in stream.sources.items() if not _may_be_missing(source)]
    missing = [
        path
        for name in names
        for path in _planned(snapshot, name, sources.get(name, SourceRecord()))
        if not Path(path).exists()
    ]
    if missing:
        raise DataLossError(
            f"its batch {start.batch_id} was planned and must be repeated, and {pluralize(len(missing), 'file')} of it "
            f"can no longer be read, such as {missing[0]}.",
            stream=stream.name,
            lost="What these files had and its tables have not is lost unless they are restored.",
            fix=f"restore the files; or, to continue without them, put empty ones in their place (touch "
            f"{quote(missing[0])}), and run the stream again.",
        )


def _may_be_missing(source: object) -> bool:
    """Return whether a source is declared to leave out files that are missing."""
    options = source.options if isinstance(source, FileSource) else {}
    return {key.lower(): value.lower() for key, value in options.items()}.get("ignoremissingfiles") == "true"


def _planned(snapshot: "Snapshot", name: str, record: SourceRecord) -> Iterator[str]:
    """Yield the paths of the files of a source in the batch, where they are now."""
    tail = snapshot.tail
    planned, committed = (
        None if entry is None else FilePosition.of(entry.source(name))
        for entry in (tail.latest_offset, tail.committed_offsets)
    )
    if planned is None:
        return
    first = -1 if committed is None else committed.entry
    recorded = {} if snapshot.manifest is None else snapshot.manifest.active.sources
    relocation = relocation_of(recorded.get(name, SourceRecord()).binding, record.binding)
    for file in logged_files(snapshot.checkpoint, name):
        path = plain_path(file.path if relocation is None else relocation.address(file.path))
        if first < file.entry <= planned.entry and "://" not in path:
            yield path

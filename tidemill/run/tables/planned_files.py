"""The files of a batch that must be repeated: they may have been removed since it was planned.

Spark leaves out a planned file that is missing, without an error, and commits the batch.
"""

from collections.abc import Mapping
from shlex import quote
from typing import TYPE_CHECKING

from tidemill.connectors.connector import Reading
from tidemill.connectors.registry import resolved
from tidemill.connectors.source_record import SourceRecord
from tidemill.errors import DataLossError
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.records.stream_records import Snapshot
    from tidemill.target.target import Target


def check_planned_files(
    stream: "Stream", target: "Target", snapshot: "Snapshot", sources: Mapping[str, SourceRecord]
) -> None:
    """Check that every file of a batch that must be repeated is there.

    Args:
        sources: The records of its sources, with the folders of this run.

    Raises:
        DataLossError: A file is missing.
    """
    start = snapshot.tail.next_start
    if start.kind != "repeat_batch":
        return
    recorded = snapshot.sources
    missing: list[str] = []
    for name, source in stream.sources.items():
        offset = snapshot.tail.planned(name)
        if offset is None or not source.streaming:
            continue
        connector, bound = resolved(source, target)
        reading = Reading(
            target=target,
            name=name,
            offset=snapshot.tail.committed(name),
            checkpoint=snapshot.checkpoint,
            record=recorded.get(name, SourceRecord()),
        )
        now = sources.get(name, SourceRecord()).binding
        missing += connector.missing_from_batch(bound, reading, offset, now)
    if missing:
        raise DataLossError(
            f"its batch {start.batch_id} was planned and must be repeated, and {pluralize(len(missing), 'file')} of it "
            f"can no longer be read, such as {missing[0]}.",
            stream=stream.name,
            lost="What these files had and its tables have not is lost unless they are restored.",
            fix=f"restore the files; or, to continue without them, put empty ones in their place (touch "
            f"{quote(missing[0])}), and run the stream again.",
            code="planned-files-missing",
        )

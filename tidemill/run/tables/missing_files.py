"""The files that the next query reads and that may be missing: unread ones of a table, and those of a planned batch.

Spark would plan the batch, fail, and repeat that batch in every later run.
"""

from collections.abc import Iterator, Mapping
from shlex import quote
from typing import TYPE_CHECKING, Any

from tidemill.connectors.connector import Reading
from tidemill.connectors.delta.backlog import merged_no_row
from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.registry import resolved
from tidemill.connectors.source_record import SourceRecord
from tidemill.errors import DataLossError
from tidemill.storage.delta_log import by_kind
from tidemill.storage.table_ref import TableRef
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.checkpoint import Tail
    from tidemill.definitions.stream import Stream
    from tidemill.records.stream_records import Snapshot
    from tidemill.storage.lake import Lake
    from tidemill.target.target import Target


def check_unread_files(
    stream: "Stream", lake: "Lake", tail: "Tail", records: Mapping[str, SourceRecord]
) -> None:
    """Check that every file that the next query reads from streams' tables is there.

    Raises:
        DataLossError: A file is missing.
    """
    for name, source in stream.sources.items():
        if source.upstream is None or not source.streaming:
            continue
        at = DeltaPosition.of(tail.committed(name))
        record = records.get(name, SourceRecord())
        if at is None and record.start != "log":
            continue  # it begins with a snapshot, and the files of the newest version are there
        first, index = (record.first_version or 0, -1) if at is None else (at.version, at.index)
        if at is not None and at.is_starting:
            first, index = at.version + 1, -1
        table = lake.table(source.upstream)
        unread = list(_unread(table, first, index, changes=source.reads_changes))
        missing = set(table.missing(path for _, path in unread))
        for version, path in unread:
            if path in missing:
                raise DataLossError(
                    f"version {version} of {source.upstream} has the file {path}, which was removed before this "
                    "stream read it: VACUUM was faster than this stream.",
                    stream=stream.name,
                    lost=f"The changes of version {version} can no longer be read one by one; what "
                    f"{source.upstream} has now can.",
                    fix=f"let VACUUM of {source.upstream} keep files for longer than its readers wait; and compute "
                    f"the stream and its readers again: tidemill rebuild {stream.name} --downstream",
                    code="upstream-files-vacuumed",
                )


def _unread(table: TableRef, first: int, index: int, *, changes: bool) -> Iterator[tuple[int, str]]:
    """Yield the version and the path of each unread file that may be missing.

    Args:
        first: The first version with unread files.
        index: The last file of that version that was read; negative if none was.
        changes: Whether the change data feed is read.
    """
    versions = list(_versions(table, first))
    removed = {file["path"] for _, actions in versions for kind, file in actions if kind == "remove"}
    for version, actions in versions:
        files = [
            (kind, file)
            for kind, file in actions
            if kind == "cdc" or (kind in ("add", "remove") and file.get("dataChange"))
        ]
        if changes:
            feed = [file for kind, file in files if kind == "cdc"]
            rewritten = any(kind == "commitInfo" and merged_no_row(info) for kind, info in actions)
            unread = feed or ([] if rewritten else [file for _, file in files])
        elif any(kind == "remove" for kind, _ in files):
            continue  # the guard has judged it, and Spark skips it
        else:
            unread = [file for _, file in files]
        for number, file in enumerate(unread):
            # A file that no commit removed is in the table. VACUUM removes change files without a commit.
            if (version > first or number > index) and (changes or file["path"] in removed):
                yield version, file["path"]


def _versions(table: TableRef, first: int) -> Iterator[tuple[int, list[tuple[str, dict[str, Any]]]]]:
    version = first
    while (actions := table.log.actions(version)) is not None:
        yield version, by_kind(actions)
        version += 1


def check_planned_files(
    stream: "Stream", target: "Target", snapshot: "Snapshot", sources: Mapping[str, SourceRecord]
) -> None:
    """Check that every file of a batch that must be repeated is there.

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

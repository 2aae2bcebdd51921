"""A reader follows the backfills of the tables that it reads, before its own range is computed."""

from dataclasses import replace
from typing import TYPE_CHECKING

from tidemill.checkpoint import SourceOffset
from tidemill.connectors.delta.position import DeltaPosition, at_version
from tidemill.operations.edits.accept import accept_version
from tidemill.records.stream_records import StreamRecords
from tidemill.run.execute.pipeline_run import PipelineRun
from tidemill.run.tables.guard import append_readings, refused_commits
from tidemill.storage.commit_metadata import commit_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemill.checkpoint import OffsetEntry
    from tidemill.connectors.source_record import SourceRecord
    from tidemill.definitions.stream import Stream
    from tidemill.run.spark.engine import Engine
    from tidemill.storage.lake import Lake
    from tidemill.target.target import Target


def follow_backfills(stream: "Stream", target: "Target", engine: "Engine", run_id: str) -> None:
    """Let a reader pass the commits of backfills upstream, and read what follows them.

    Its own backfill then computes the range from the rows that those commits wrote.

    Args:
        run_id: The id of the run that reads on.

    Raises:
        TidemillError: The run fails.
        LeaseHeldError: Another run holds the stream.
    """
    snapshot = StreamRecords(target.lake, stream.name).snapshot()
    if snapshot.manifest is None:
        return
    sources = snapshot.manifest.active.sources
    passed = [
        (upstream, commit.version)
        for upstream, commit in refused_commits(stream, target.lake, snapshot.tail, sources)
        if {"operation", "begin", "end"} <= commit_metadata(commit).keys()
    ]
    for upstream, version in passed:
        accept_version(stream, target, upstream, version)
    if passed:
        for result in PipelineRun([stream], target=target, engine=engine, run_id=run_id).iter_results():
            if result.error is not None:
                raise result.error


def past_accepted_commits(
    stream: "Stream", lake: "Lake", entry: "OffsetEntry", records: "Mapping[str, SourceRecord]"
) -> "OffsetEntry":
    """Return the offsets of a reader, moved past the accepted commits that follow them at once.

    A run that finds nothing but a commit that it skips leaves the offset where it is, and a snapshot up to that
    offset would have the rows from before the commit.

    Args:
        entry: Its committed offsets.
    """
    ends: dict[str, int] = {}
    for name, upstream in append_readings(stream).items():
        position = entry.source(name)
        offset = DeltaPosition.of(position)
        accepted = records[name].accepted_versions if name in records else ()
        if offset is None or offset.index >= 0 or offset.is_starting:
            continue
        version = offset.version
        while (commit := lake.table(upstream).log.commit(version)) is not None:
            is_accepted = version in accepted
            if not is_accepted and (commit.adds_rows or commit.removes_rows):
                break
            version += 1
            if is_accepted:
                ends[name] = version
    moved = (
        SourceOffset.parse("", source.name, source.index, at_version(source.raw or "", end))
        if (end := ends.get(source.key))
        else source
        for source in entry.sources
    )
    return replace(entry, sources=tuple(moved))

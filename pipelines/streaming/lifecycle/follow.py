"""A reader follows the backfills of the tables that it reads, before its own range is computed."""

from typing import TYPE_CHECKING

from pipelines.streaming.lifecycle.accept import accept_version
from pipelines.streaming.records import StreamRecords
from pipelines.streaming.run.batch_record import commit_metadata
from pipelines.streaming.run.guard import refused_commits
from pipelines.streaming.run.pipeline_run import PipelineRun

if TYPE_CHECKING:
    from pipelines.streaming.run.engine import Engine
    from pipelines.streaming.stream import Stream
    from pipelines.streaming.target import Target


def follow_backfills(stream: "Stream", target: "Target", engine: "Engine", run_id: str) -> None:
    """Let a reader pass the commits of backfills upstream, and read what follows them.

    Its own backfill then computes the range from the rows that those commits wrote.

    Args:
        stream: The reader.
        target: The target.
        engine: Where Spark sessions come from.
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
        (source.stream, commit.version)
        for source, commit in refused_commits(stream, target.lake, snapshot.tail, sources)
        if {"operation", "begin", "end"} <= commit_metadata(commit).keys()
    ]
    for upstream, version in passed:
        accept_version(stream, target, upstream, version)
    if passed:
        for result in PipelineRun([stream], target=target, engine=engine, run_id=run_id).iter_results():
            if result.error is not None:
                raise result.error

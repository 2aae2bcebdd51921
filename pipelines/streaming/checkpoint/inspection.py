"""What is in a checkpoint, in one value: for `inspect`, and the frame of what `verify` answers.

It reads the tail and lists the state. A file that cannot be read does not end it: what that file would have
said is None, and the problem is listed.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pipelines.streaming.checkpoint.commits import CommitEntry
from pipelines.streaming.checkpoint.errors import CheckpointFormatError
from pipelines.streaming.checkpoint.files import Folder
from pipelines.streaming.checkpoint.offsets import OffsetEntry
from pipelines.streaming.checkpoint.operators import (
    Operator,
    operator_from_folders,
    operator_ids,
    read_operator,
)
from pipelines.streaming.checkpoint.source_offset import SourceOffset
from pipelines.streaming.checkpoint.state_files import Provider, StateFile, provider_of
from pipelines.streaming.checkpoint.tail import (
    NextStart,
    batches_in,
    commit_entry,
    newest,
    next_start,
    offset_entry,
    opened,
    query_id,
)

T = TypeVar("T")

PROVIDER_CONF = "spark.sql.streaming.stateStore.providerClass"
_CONF_OF_4_2 = "spark.sql.streaming.stateStore.rowChecksum.enabled"


@dataclass(frozen=True, slots=True)
class OperatorView:
    """A stateful operator and what its folders hold.

    Attributes:
        operator: What its metadata say.
        provider: Which state store provider wrote it; None when no state file is there.
        version: The state version that the next start loads; None before the first batch.
        versions: The oldest and the newest version that any of its files is of; None without files.
        files: How many state files there are, over all stores and partitions.
        bytes: Their size.
    """

    operator: Operator
    provider: Provider | None
    version: int | None
    versions: tuple[int, int] | None
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is in a checkpoint.

    Attributes:
        path: The checkpoint, as it was given.
        query_id: Spark's id of the query; None without readable `metadata`.
        offset_log_versions: The format versions of the offset files that were read.
        commit_log_versions: The format versions of the commit files that were read.
        latest_offset: The newest offsets; None without any, or when they cannot be read.
        latest_commit: The newest commit, likewise.
        latest_offset_batch: The newest batch with offsets.
        latest_committed_batch: The newest batch with a commit.
        uncommitted_batches: The batches that have offsets and come after the newest commit.
        next_start: What the next start will do; None when the tail cannot be read.
        watermark_ms: The watermark of the next batch, milliseconds since the epoch; None when unknown.
        operators: The stateful operators.
        problems: The files that could not be read.
    """

    path: str
    query_id: str | None
    offset_log_versions: tuple[int, ...]
    commit_log_versions: tuple[int, ...]
    latest_offset: OffsetEntry | None
    latest_commit: CommitEntry | None
    latest_offset_batch: int | None
    latest_committed_batch: int | None
    uncommitted_batches: tuple[int, ...]
    next_start: NextStart | None
    watermark_ms: int | None
    operators: tuple[OperatorView, ...]
    problems: tuple[CheckpointFormatError, ...]

    @property
    def sources(self) -> tuple[SourceOffset, ...]:
        """Up to where each source is planned."""
        return self.latest_offset.sources if self.latest_offset else ()

    @property
    def conf(self) -> Mapping[str, str]:
        """The settings that the checkpoint pins: they win over the session's."""
        return self.latest_offset.conf if self.latest_offset else {}

    @property
    def since_spark_4_2(self) -> bool:
        """Whether Spark 4.2 or a later one planned the last batch, told by a setting that only these pin."""
        return _CONF_OF_4_2 in self.conf


def inspect(path: str | os.PathLike[str]) -> Inspection:
    """What is in the checkpoint at a path.

    Raises:
        NotACheckpointError: the path is no checkpoint.
    """
    return inspection_of(opened(path))


def inspection_of(folder: Folder) -> Inspection:
    """What is in an opened checkpoint."""
    problems: list[CheckpointFormatError] = []

    def reading(read: Callable[[], T], fallback: T) -> T:
        try:
            return read()
        except CheckpointFormatError as problem:
            problems.append(problem)
            return fallback

    none: list[int] = []
    offsets = reading(partial(batches_in, folder, "offsets"), none)
    commits = reading(partial(batches_in, folder, "commits"), none)
    last_offset, last_commit = newest(offsets), newest(commits)
    offset: OffsetEntry | None = None
    commit: CommitEntry | None = None
    if last_offset is not None:
        offset = reading(partial(offset_entry, folder, last_offset), None)
    if last_commit is not None:
        commit = reading(partial(commit_entry, folder, last_commit), None)
    ids = reading(partial(operator_ids, folder), none)
    start = None
    if (offset is None) == (last_offset is None) and (commit is None) == (last_commit is None):
        start = next_start(offset, commit, stateful=bool(ids))
    committed = -1 if last_commit is None else last_commit
    return Inspection(
        path=folder.address,
        query_id=reading(partial(query_id, folder), None),
        offset_log_versions=() if offset is None else (offset.version,),
        commit_log_versions=() if commit is None else (commit.version,),
        latest_offset=offset,
        latest_commit=commit,
        latest_offset_batch=last_offset,
        latest_committed_batch=last_commit,
        uncommitted_batches=tuple(batch for batch in offsets if batch > committed),
        next_start=start,
        watermark_ms=_watermark(start, offset, commit),
        operators=tuple(
            view
            for operator in ids
            if (view := reading(partial(_view, folder, _operator(folder, operator, problems), start), None))
        ),
        problems=tuple(problems),
    )


def _watermark(start: NextStart | None, offset: OffsetEntry | None, commit: CommitEntry | None) -> int | None:
    """A repeated batch runs under its own offsets' watermark, a later one under the last commit's."""
    if start is None or offset is None:
        return None
    if start.kind == "repeat_batch" or commit is None:
        return offset.watermark_ms
    return max(offset.watermark_ms, commit.next_watermark_ms)


def _operator(folder: Folder, operator: int, problems: list[CheckpointFormatError]) -> Operator:
    """One operator: from its folders alone where its metadata cannot be read."""
    try:
        return read_operator(folder, operator)
    except CheckpointFormatError as problem:
        problems.append(problem)
        return operator_from_folders(folder, operator)


def _view(folder: Folder, described: Operator, start: NextStart | None) -> OperatorView:
    files: list[StateFile] = []
    count = total = 0
    for _, _, place in described.folders():
        for item in folder.items(place):
            file = StateFile.parse(item.name) if item.kind == "file" else None
            if file is not None:
                files.append(file)
                count += 1
                total += item.size
        for item in folder.items(f"{place}/SSTs"):
            if item.kind == "file" and item.name.endswith(".sst"):
                count += 1
                total += item.size
    versions = [file.version for file in files]
    return OperatorView(
        operator=described,
        provider=provider_of(files),
        version=start.batch_id if start and start.batch_id > 0 else None,
        versions=(min(versions), max(versions)) if versions else None,
        files=count,
        bytes=total,
    )

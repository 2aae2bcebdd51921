"""The contents of a checkpoint in one value: the answer of `inspect`, and the facts that `verify` judges.

The inspection reads the tail and lists the state. An unreadable file does not stop it: the values from that
file are None, and the problem is listed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from tidemill.checkpoint.format.commits import CommitEntry
from tidemill.checkpoint.format.errors import CheckpointFormatError
from tidemill.checkpoint.format.folder import Checkpoint, Folder
from tidemill.checkpoint.format.logs import (
    batches_in,
    commit_entry,
    newest,
    offset_entry,
    open_checkpoint,
    query_id,
)
from tidemill.checkpoint.format.offsets import OffsetEntry
from tidemill.checkpoint.format.operators import Operator, operator_from_folders, operator_ids, read_operator
from tidemill.checkpoint.format.source_offset import SourceOffset
from tidemill.checkpoint.format.state_files import Provider, StateFile, provider_of
from tidemill.checkpoint.positions import Recognizer
from tidemill.checkpoint.tail import NextStart, next_start, next_watermark_ms

T = TypeVar("T")

PROVIDER_CONF = "spark.sql.streaming.stateStore.providerClass"
_CONF_OF_4_2 = "spark.sql.streaming.stateStore.rowChecksum.enabled"


@dataclass(frozen=True, slots=True)
class OperatorView:
    """A stateful operator and the contents of its folders.

    Attributes:
        operator: The operator, from its metadata.
        provider: The state store provider that wrote its files; None without state files.
        version: The state version that the next start loads; None before the first batch.
        versions: The oldest and the newest version of its files; None without files.
        files: The number of state files in all stores and partitions.
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
    """The contents of a checkpoint.

    Attributes:
        path: The checkpoint, as the caller gave it.
        query_id: Spark's id of the query; None without readable `metadata`.
        offset_log_versions: The format versions of the offset files that were read.
        commit_log_versions: The format versions of the commit files that were read.
        latest_offset: The newest offsets; None without any, or if the file is unreadable.
        latest_commit: The newest commit; None without any, or if the file is unreadable.
        latest_offset_batch: The newest batch with offsets.
        latest_committed_batch: The newest batch with a commit.
        uncommitted_batches: The batches that have offsets and come after the newest commit.
        next_start: What the next start does; None if the tail is unreadable.
        watermark_ms: The watermark of the next batch, milliseconds since the epoch; None before any event, or if
            the tail is unreadable.
        operators: The stateful operators.
        problems: The unreadable files.
        recognize: Returns the position in the offset of a source.
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
    recognize: Recognizer = field(repr=False, compare=False)

    @property
    def sources(self) -> tuple[SourceOffset, ...]:
        """The planned offset of each source."""
        return self.latest_offset.sources if self.latest_offset else ()

    @property
    def conf(self) -> Mapping[str, str]:
        """The settings that the checkpoint pins; they override the session's."""
        return self.latest_offset.conf if self.latest_offset else {}

    @property
    def since_spark_4_2(self) -> bool:
        """True if Spark 4.2 or later planned the last batch: only these versions pin a certain setting."""
        return _CONF_OF_4_2 in self.conf


def inspect(checkpoint: Checkpoint, recognize: Recognizer) -> Inspection:
    """Return the contents of the checkpoint at a path.

    Args:
        recognize: Returns the position in the offset of a source.

    Raises:
        NotACheckpointError: The path is not a checkpoint.
    """
    return inspect_folder(open_checkpoint(checkpoint), recognize)


def inspect_folder(folder: Folder, recognize: Recognizer) -> Inspection:
    """Return the contents of an opened checkpoint."""
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
        watermark_ms=next_watermark_ms(start, offset, commit),
        operators=tuple(
            view
            for operator in ids
            if (view := reading(partial(_view, folder, _operator(folder, operator, problems), start), None))
        ),
        problems=tuple(problems),
        recognize=recognize,
    )


def _operator(folder: Folder, operator: int, problems: list[CheckpointFormatError]) -> Operator:
    """Return one operator: from its folders if its metadata is unreadable."""
    try:
        return read_operator(folder, operator)
    except CheckpointFormatError as problem:
        problems.append(problem)
        return operator_from_folders(folder, operator)


def _view(folder: Folder, operator: Operator, start: NextStart | None) -> OperatorView:
    files: list[StateFile] = []
    count = total = 0
    for _, _, store in operator.folders():
        for item in folder.items(store):
            file = StateFile.parse(item.name) if item.kind == "file" else None
            if file is not None:
                files.append(file)
                count += 1
                total += item.size
        for item in folder.items(f"{store}/SSTs"):
            if item.kind == "file" and item.name.endswith(".sst"):
                count += 1
                total += item.size
    versions = [file.version for file in files]
    return OperatorView(
        operator=operator,
        provider=provider_of(files),
        version=start.batch_id if start and start.batch_id > 0 else None,
        versions=(min(versions), max(versions)) if versions else None,
        files=count,
        bytes=total,
    )

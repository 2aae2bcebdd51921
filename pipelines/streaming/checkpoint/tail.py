"""The end of a checkpoint's logs, and what follows from it: what the next start will do.

Nothing but the tail is read: two listings of names and at most four small files, so it takes as long for a
checkpoint of ten thousand batches as for a new one.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pipelines.streaming.checkpoint.commits import CommitEntry, parse_commit
from pipelines.streaming.checkpoint.errors import CheckpointFormatError, FileAbsentError, NotACheckpointError
from pipelines.streaming.checkpoint.files import Folder
from pipelines.streaming.checkpoint.logfile import decode, parse_object, shown
from pipelines.streaming.checkpoint.offsets import OffsetEntry, parse_offsets

_QUERY_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)

StartKind = Literal["first_run", "continue", "repeat_batch", "no_data_batch"]


@dataclass(frozen=True, slots=True)
class NextStart:
    """What the next start will do.

    Attributes:
        kind: `first_run`: nothing has run yet. `continue`: the last batch is done, new data makes the next.
            `repeat_batch`: the last batch has offsets and no commit, it runs again over the same range.
            `no_data_batch`: the last batch is done and moved the watermark, and the batch that would give out
            what the new watermark closed has not run. Spark runs it only together with new data.
        batch_id: The batch that is run (`repeat_batch`) or comes next.
    """

    kind: StartKind
    batch_id: int


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a checkpoint's logs.

    Attributes:
        path: The checkpoint, as it was given.
        query_id: Spark's id of the query; None without `metadata`.
        latest_offset: The newest file of `offsets/`; None when no batch was planned.
        latest_commit: The newest file of `commits/`; None when no batch ended.
        committed_offsets: The offsets of the newest committed batch: up to here the sources are read.
        stateful: Whether there are operators with state.
    """

    path: str
    query_id: str | None
    latest_offset: OffsetEntry | None
    latest_commit: CommitEntry | None
    committed_offsets: OffsetEntry | None
    stateful: bool

    @property
    def next_watermark_ms(self) -> int | None:
        """The watermark of the next batch, milliseconds since the epoch; None without one."""
        if self.next_start.kind == "repeat_batch" and self.latest_offset is not None:
            return self.latest_offset.watermark_ms or None
        return None if self.latest_commit is None else self.latest_commit.next_watermark_ms or None

    @property
    def next_start(self) -> NextStart:
        """What the next start will do."""
        return next_start(self.latest_offset, self.latest_commit, stateful=self.stateful)


def next_start(offset: OffsetEntry | None, commit: CommitEntry | None, *, stateful: bool) -> NextStart:
    """What Spark does when it starts from this offset and this commit (MicroBatchExecution).

    A pending no-data batch is told by the watermark alone; whether the operators would give anything out for
    it, only their plan says. Running it when it gives nothing out does no harm.
    """
    if offset is None:
        return NextStart("first_run", 0)
    if commit is None or commit.batch_id != offset.batch_id:
        return NextStart("repeat_batch", offset.batch_id)
    if stateful and commit.next_watermark_ms > offset.watermark_ms:
        return NextStart("no_data_batch", offset.batch_id + 1)
    return NextStart("continue", offset.batch_id + 1)


def read_tail(path: str | os.PathLike[str]) -> Tail:
    """The tail of the checkpoint at a path.

    Raises:
        NotACheckpointError: the path is no checkpoint.
        CheckpointFormatError: a file at the tail is damaged or of an unknown version.
    """
    return tail_of(opened(path))


def read_tail_or_empty(path: str | os.PathLike[str]) -> Tail:
    """Return the tail of the checkpoint at a path; an empty tail where there is no checkpoint yet.

    Raises:
        CheckpointFormatError: A file at the tail is damaged or of an unknown version.
    """
    try:
        return read_tail(path)
    except NotACheckpointError:
        return Tail(os.fspath(path), None, None, None, None, stateful=False)


def opened(path: str | os.PathLike[str]) -> Folder:
    """The checkpoint's folder.

    Raises:
        NotACheckpointError: the path does not exist, or has no `metadata`, no `offsets` and no `commits`.
    """
    folder = Folder.at(path)
    if not folder.exists():
        raise NotACheckpointError(folder.address, "there is no such folder")
    if not {"metadata", "offsets", "commits"} & set(folder.names("")):
        raise NotACheckpointError(folder.address, "it holds no metadata, no offsets and no commits")
    return folder


def tail_of(folder: Folder) -> Tail:
    """The tail of an opened checkpoint; raises CheckpointFormatError as `read_tail` does."""
    offset = newest(batches_in(folder, "offsets"))
    commit = newest(batches_in(folder, "commits"))
    latest_offset = None if offset is None else offset_entry(folder, offset)
    latest_commit = None if commit is None else commit_entry(folder, commit)
    committed = latest_offset if commit == offset else None
    if commit is not None and commit != offset:
        try:
            committed = offset_entry(folder, commit)
        except FileAbsentError:
            committed = None  # a commit without offsets: `verify` says so
    return Tail(
        path=folder.address,
        query_id=query_id(folder),
        latest_offset=latest_offset,
        latest_commit=latest_commit,
        committed_offsets=committed,
        stateful=bool(folder.numbers("state")),
    )


def query_id(folder: Folder) -> str | None:
    """The id in `metadata`; None where there is no such file.

    Raises:
        CheckpointFormatError: the file is damaged.
    """
    try:
        data = folder.read("metadata")
    except FileAbsentError:
        return None
    value = parse_object("metadata", decode("metadata", data)).get("id")
    if not isinstance(value, str) or _QUERY_ID.fullmatch(value) is None:
        raise CheckpointFormatError(
            "metadata", f"id is {shown(repr(value))}, not a UUID.", code="unparseable-file"
        )
    return value


def batches_in(folder: Folder, log: str) -> list[int]:
    """The batches that have a file in `offsets` or `commits`, ascending."""
    return folder.numbers(log)


def newest(batches: Iterable[int]) -> int | None:
    """The highest batch; None when there is none."""
    return max(batches, default=None)


def offset_entry(folder: Folder, batch_id: int) -> OffsetEntry:
    """`offsets/<batch_id>`; raises CheckpointFormatError."""
    where = f"offsets/{batch_id}"
    return parse_offsets(batch_id, folder.read(where), where)


def commit_entry(folder: Folder, batch_id: int) -> CommitEntry:
    """`commits/<batch_id>`; raises CheckpointFormatError."""
    where = f"commits/{batch_id}"
    return parse_commit(batch_id, folder.read(where), where)


def readable_offset(folder: Folder, batch_id: int) -> OffsetEntry | None:
    """`offsets/<batch_id>`; None where there is none, or it cannot be read."""
    try:
        return offset_entry(folder, batch_id)
    except CheckpointFormatError:
        return None


def readable_commit(folder: Folder, batch_id: int) -> CommitEntry | None:
    """`commits/<batch_id>`; None where there is none, or it cannot be read."""
    try:
        return commit_entry(folder, batch_id)
    except CheckpointFormatError:
        return None


def offset_batches(path: str | os.PathLike[str]) -> list[int]:
    """The batches of which the checkpoint still has offsets, ascending (Spark keeps the last hundred)."""
    return batches_in(opened(path), "offsets")


def commit_batches(path: str | os.PathLike[str]) -> list[int]:
    """The batches of which the checkpoint still has the commit, ascending."""
    return batches_in(opened(path), "commits")


def read_offset(path: str | os.PathLike[str], batch_id: int) -> OffsetEntry:
    """The offsets of one batch; raises CheckpointFormatError (FileAbsentError where there are none)."""
    return offset_entry(opened(path), batch_id)


def read_commit(path: str | os.PathLike[str], batch_id: int) -> CommitEntry:
    """The commit of one batch; raises CheckpointFormatError (FileAbsentError where there is none)."""
    return commit_entry(opened(path), batch_id)

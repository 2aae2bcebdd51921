"""The end of a checkpoint's logs, and what the next start does.

Only the tail is read: two listings of names and at most four small files. Reading it takes as long for a
checkpoint of ten thousand batches as for a new one.
"""

from dataclasses import dataclass
from typing import Literal

from tidemill.checkpoint.format.commits import CommitEntry
from tidemill.checkpoint.format.errors import FileAbsentError, NotACheckpointError
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
from tidemill.checkpoint.format.source_offset import SourceOffset

StartKind = Literal["first_run", "continue", "repeat_batch", "no_data_batch"]


@dataclass(frozen=True, slots=True)
class NextStart:
    """What the next start does.

    Attributes:
        kind: `first_run`: nothing has run yet. `continue`: the last batch is complete, new data becomes the next
            one. `repeat_batch`: the last batch has offsets and no commit, so it runs again over the same range.
            `no_data_batch`: the last batch is complete and moved the watermark, and the batch that emits the
            results this closed has not run. Spark runs that batch only together with new data.
        batch_id: The batch that is repeated (`repeat_batch`) or comes next.
    """

    kind: StartKind
    batch_id: int


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a checkpoint's logs.

    Attributes:
        path: The checkpoint, as the caller gave it.
        query_id: Spark's id of the query; None without `metadata`.
        latest_offset: The newest file of `offsets/`; None if no batch was planned.
        latest_commit: The newest file of `commits/`; None if no batch was committed.
        committed_offsets: The offsets of the newest committed batch: the sources are read up to here.
        stateful: True if there are operators with state.
    """

    path: str
    query_id: str | None
    latest_offset: OffsetEntry | None
    latest_commit: CommitEntry | None
    committed_offsets: OffsetEntry | None
    stateful: bool

    def planned(self, source: str) -> SourceOffset | None:
        """Return where a source ends in the newest batch with offsets; None where that batch does not have it."""
        return None if self.latest_offset is None else self.latest_offset.source(source)

    def committed(self, source: str) -> SourceOffset | None:
        """Return where a source ends in the newest committed batch; None where that batch does not have it."""
        return None if self.committed_offsets is None else self.committed_offsets.source(source)

    @property
    def plans_no_rows(self) -> bool:
        """Whether the newest planned batch ends where the newest committed one does, so that it reads no rows."""
        if self.latest_offset is None or self.committed_offsets is None:
            return False
        planned, committed = self.latest_offset.sources, self.committed_offsets.sources
        return {one.key: one.raw for one in planned} == {one.key: one.raw for one in committed}

    @property
    def next_start(self) -> NextStart:
        """What the next start does."""
        return next_start(self.latest_offset, self.latest_commit, stateful=self.stateful)

    @property
    def next_watermark_ms(self) -> int | None:
        """The watermark of the next batch, milliseconds since the epoch; None before any event."""
        return next_watermark_ms(self.next_start, self.latest_offset, self.latest_commit)


def next_start(offset: OffsetEntry | None, commit: CommitEntry | None, *, stateful: bool) -> NextStart:
    """Return what Spark does when it starts from this offset and this commit (MicroBatchExecution).

    The watermark alone shows a pending no-data batch. The plan would show whether the operators emit anything
    in it; running the batch when they emit nothing does no harm.
    """
    if offset is None:
        return NextStart("first_run", 0)
    if commit is None or commit.batch_id != offset.batch_id:
        return NextStart("repeat_batch", offset.batch_id)
    if stateful and (commit.next_watermark_ms or 0) > offset.watermark_ms:
        return NextStart("no_data_batch", offset.batch_id + 1)
    return NextStart("continue", offset.batch_id + 1)


def next_watermark_ms(
    start: NextStart | None, offset: OffsetEntry | None, commit: CommitEntry | None
) -> int | None:
    """Return the watermark of the next batch; None if it is unknown, or before any event.

    A repeated batch has the watermark of its own offsets, a later batch that of the last commit. Spark never
    lowers the watermark, and writes 0 for none; before 2.4 it left the watermark out of the commit.
    """
    if start is None or offset is None:
        return None
    if start.kind == "repeat_batch" or commit is None:
        return offset.watermark_ms or None
    return max(offset.watermark_ms, commit.next_watermark_ms or 0) or None


def read_tail(checkpoint: Checkpoint) -> Tail:
    """Return the tail of the checkpoint at a path.

    Raises:
        NotACheckpointError: The path is not a checkpoint.
        CheckpointFormatError: A file at the tail is damaged or of an unsupported version.
    """
    folder = open_checkpoint(checkpoint)
    offset = newest(batches_in(folder, "offsets"))
    commit = newest(batches_in(folder, "commits"))
    entries = [f"{log}/{batch}" for log in ("offsets", "commits") for batch in batches_in(folder, log)[-1:]]
    folder.fetch(["metadata", *entries])
    latest_offset = None if offset is None else offset_entry(folder, offset)
    latest_commit = None if commit is None else commit_entry(folder, commit)
    committed = latest_offset if commit == offset else None
    if commit is not None and commit != offset:
        try:
            committed = offset_entry(folder, commit)
        except FileAbsentError:
            committed = None  # a commit without offsets, which `verify` reports
    return Tail(
        path=folder.address,
        query_id=query_id(folder),
        latest_offset=latest_offset,
        latest_commit=latest_commit,
        committed_offsets=committed,
        stateful=bool(folder.numbers("state")),
    )


def read_tail_or_empty(checkpoint: Checkpoint) -> Tail:
    """Return the tail of the checkpoint at a path; an empty one if there is no checkpoint yet.

    Raises:
        CheckpointFormatError: A file at the tail is damaged or of an unsupported version.
    """
    try:
        return read_tail(checkpoint)
    except NotACheckpointError:
        return Tail(
            path=Folder.at(checkpoint).address,
            query_id=None,
            latest_offset=None,
            latest_commit=None,
            committed_offsets=None,
            stateful=False,
        )

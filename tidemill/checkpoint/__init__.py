"""A checkpoint read without a JVM: its contents, its history, and what the next start does."""

from tidemill.checkpoint.diff import Difference, diff
from tidemill.checkpoint.format.commits import CommitEntry
from tidemill.checkpoint.format.errors import CheckpointFormatError, FileAbsentError, NotACheckpointError
from tidemill.checkpoint.format.logs import (
    commit_batches,
    has_checkpoint,
    offset_batches,
    read_commit,
    read_offset,
)
from tidemill.checkpoint.format.offsets import OffsetEntry
from tidemill.checkpoint.format.source_log import SourceFile, file_source_paths
from tidemill.checkpoint.format.source_offset import SourceOffset
from tidemill.checkpoint.history import BatchHistory, SourceRange, history
from tidemill.checkpoint.inspection import Inspection, OperatorView, inspect
from tidemill.checkpoint.state_changes import changes_to_apply
from tidemill.checkpoint.tail import NextStart, Tail, read_tail, read_tail_or_empty

__all__ = [
    "BatchHistory",
    "CheckpointFormatError",
    "CommitEntry",
    "Difference",
    "FileAbsentError",
    "Inspection",
    "NextStart",
    "NotACheckpointError",
    "OffsetEntry",
    "OperatorView",
    "SourceFile",
    "SourceOffset",
    "SourceRange",
    "Tail",
    "changes_to_apply",
    "commit_batches",
    "diff",
    "file_source_paths",
    "has_checkpoint",
    "history",
    "inspect",
    "offset_batches",
    "read_commit",
    "read_offset",
    "read_tail",
    "read_tail_or_empty",
]

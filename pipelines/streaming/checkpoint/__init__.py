"""A checkpoint read without a JVM: its contents, its history, and what the next start does."""

from pipelines.streaming.checkpoint.diff import Difference, diff
from pipelines.streaming.checkpoint.format.commits import CommitEntry
from pipelines.streaming.checkpoint.format.errors import (
    CheckpointFormatError,
    FileAbsentError,
    NotACheckpointError,
)
from pipelines.streaming.checkpoint.format.logs import (
    commit_batches,
    offset_batches,
    read_commit,
    read_offset,
)
from pipelines.streaming.checkpoint.format.offsets import OffsetEntry
from pipelines.streaming.checkpoint.format.source_log import SourceFile, file_source_paths
from pipelines.streaming.checkpoint.format.source_offset import DeltaOffset, SourceKind, SourceOffset
from pipelines.streaming.checkpoint.history import BatchHistory, SourceRange, history
from pipelines.streaming.checkpoint.inspection import Inspection, OperatorView, inspect
from pipelines.streaming.checkpoint.state_changes import changes_to_apply
from pipelines.streaming.checkpoint.tail import NextStart, Tail, read_tail, read_tail_or_empty

__all__ = [
    "BatchHistory",
    "CheckpointFormatError",
    "CommitEntry",
    "DeltaOffset",
    "Difference",
    "FileAbsentError",
    "Inspection",
    "NextStart",
    "NotACheckpointError",
    "OffsetEntry",
    "OperatorView",
    "SourceFile",
    "SourceKind",
    "SourceOffset",
    "SourceRange",
    "Tail",
    "changes_to_apply",
    "commit_batches",
    "diff",
    "file_source_paths",
    "history",
    "inspect",
    "offset_batches",
    "read_commit",
    "read_offset",
    "read_tail",
    "read_tail_or_empty",
]

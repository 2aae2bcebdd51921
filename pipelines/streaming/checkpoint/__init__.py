"""A checkpoint read without a JVM: what is in it, whether the next start will work, what it will do."""

from pipelines.streaming.checkpoint.check_logs import UNPINNED_PARTITIONS
from pipelines.streaming.checkpoint.commits import CommitEntry
from pipelines.streaming.checkpoint.diff import Difference, diff
from pipelines.streaming.checkpoint.errors import CheckpointFormatError, FileAbsentError, NotACheckpointError
from pipelines.streaming.checkpoint.findings import Finding, Level, Severity
from pipelines.streaming.checkpoint.history import BatchHistory, SourceRange, history
from pipelines.streaming.checkpoint.inspection import Inspection, OperatorView, inspect
from pipelines.streaming.checkpoint.offsets import OffsetEntry
from pipelines.streaming.checkpoint.source_log import SourceFile, file_source_paths
from pipelines.streaming.checkpoint.source_offset import DeltaOffset, SourceKind, SourceOffset
from pipelines.streaming.checkpoint.tail import (
    NextStart,
    Tail,
    commit_batches,
    offset_batches,
    read_commit,
    read_offset,
    read_tail,
    read_tail_or_empty,
)
from pipelines.streaming.checkpoint.verify import Verdict, verify

__all__ = [
    "UNPINNED_PARTITIONS",
    "BatchHistory",
    "CheckpointFormatError",
    "CommitEntry",
    "DeltaOffset",
    "Difference",
    "FileAbsentError",
    "Finding",
    "Inspection",
    "Level",
    "NextStart",
    "NotACheckpointError",
    "OffsetEntry",
    "OperatorView",
    "Severity",
    "SourceFile",
    "SourceKind",
    "SourceOffset",
    "SourceRange",
    "Tail",
    "Verdict",
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
    "verify",
]

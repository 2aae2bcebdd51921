"""The verification of a checkpoint: everything that makes the next start fail, or lose or duplicate rows."""

from pipelines.streaming.checkpoint.verify.findings import Finding, Level, Severity
from pipelines.streaming.checkpoint.verify.logs import UNPINNED_PARTITIONS
from pipelines.streaming.checkpoint.verify.verification import Verdict, verify

__all__ = ["UNPINNED_PARTITIONS", "Finding", "Level", "Severity", "Verdict", "verify"]

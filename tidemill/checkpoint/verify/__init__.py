"""The verification of a checkpoint: everything that makes the next start fail, or lose or duplicate rows."""

from tidemill.checkpoint.verify.findings import Finding, Level, Severity
from tidemill.checkpoint.verify.logs import UNPINNED_PARTITIONS
from tidemill.checkpoint.verify.verification import Verdict, verify

__all__ = ["UNPINNED_PARTITIONS", "Finding", "Level", "Severity", "Verdict", "verify"]

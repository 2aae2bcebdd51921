"""The JSON output of `checkpoint verify`."""

from typing import Any

from tidemill.checkpoint.document import SCHEMA_VERSION, checkpoint_fields
from tidemill.checkpoint.verify.findings import Finding
from tidemill.checkpoint.verify.verification import Verdict


def verify_document(verdict: Verdict) -> dict[str, Any]:
    """Return the JSON of `checkpoint verify`."""
    return {
        "schema_version": SCHEMA_VERSION,
        **checkpoint_fields(verdict.inspection),
        "offset_log_versions": list(verdict.offset_log_versions),
        "commit_log_versions": list(verdict.commit_log_versions),
        "level": verdict.level,
        "findings": [_finding(finding) for finding in verdict.findings],
        "sound": verdict.sound,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "where": finding.where,
        "what": finding.what,
        "fix": finding.fix,
    }

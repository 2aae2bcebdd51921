"""What the commands print for programs: plain JSON values, with nothing left out that people see."""

from collections.abc import Sequence
from typing import Any

from pipelines.streaming.checkpoint.diff import Difference
from pipelines.streaming.checkpoint.findings import Finding
from pipelines.streaming.checkpoint.history import BatchHistory
from pipelines.streaming.checkpoint.inspection import Inspection, OperatorView
from pipelines.streaming.checkpoint.source_offset import SourceOffset
from pipelines.streaming.checkpoint.verify import Verdict

SCHEMA_VERSION = 1


def verify_document(verdict: Verdict) -> dict[str, Any]:
    """`checkpoint verify --json`."""
    return {
        "schema_version": SCHEMA_VERSION,
        **_checkpoint(verdict.inspection),
        "offset_log_versions": list(verdict.offset_log_versions),
        "commit_log_versions": list(verdict.commit_log_versions),
        "level": verdict.level,
        "findings": [_finding(finding) for finding in verdict.findings],
        "sound": verdict.sound,
    }


def inspect_document(seen: Inspection) -> dict[str, Any]:
    """`checkpoint inspect --json`: as `verify --json` without a judgement, with settings and sizes."""
    sizes = [
        {
            "versions": None if view.versions is None else list(view.versions),
            "files": view.files,
            "bytes": view.bytes,
        }
        for view in seen.operators
    ]
    document = {"schema_version": SCHEMA_VERSION, **_checkpoint(seen), "conf": dict(seen.conf)}
    document["operators"] = [
        {**operator, **size} for operator, size in zip(document["operators"], sizes, strict=True)
    ]
    document["problems"] = [
        {"where": problem.where, "code": problem.code, "what": problem.what} for problem in seen.problems
    ]
    return document


def history_document(path: str, batches: Sequence[BatchHistory]) -> dict[str, Any]:
    """`checkpoint history --json`, oldest batch first."""
    return {"schema_version": SCHEMA_VERSION, "path": path, "batches": [_batch(batch) for batch in batches]}


def diff_document(a: Inspection, b: Inspection, differences: Sequence[Difference]) -> dict[str, Any]:
    """`checkpoint diff --json`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "a": a.path,
        "b": b.path,
        "differences": [
            {"what": each.what, "name": each.name, "a": each.a, "b": each.b} for each in differences
        ],
        "same": not differences,
    }


def _checkpoint(seen: Inspection) -> dict[str, Any]:
    start = seen.next_start
    return {
        "path": seen.path,
        "query_id": seen.query_id,
        "offset_log_versions": list(seen.offset_log_versions),
        "commit_log_versions": list(seen.commit_log_versions),
        "latest_offset_batch": seen.latest_offset_batch,
        "latest_committed_batch": seen.latest_committed_batch,
        "uncommitted_batches": list(seen.uncommitted_batches),
        "next_start": None if start is None else {"kind": start.kind, "batch_id": start.batch_id},
        "watermark_ms": seen.watermark_ms,
        "sources": [_source(source) for source in seen.sources],
        "operators": [_operator(view) for view in seen.operators],
    }


def _source(source: SourceOffset) -> dict[str, Any]:
    which = {"name": source.name} if source.name is not None else {"index": source.index}
    return {**which, "kind": source.kind, "offset": source.value}


def _operator(view: OperatorView) -> dict[str, Any]:
    return {
        "id": view.operator.id,
        "name": view.operator.name,
        "partitions": view.operator.partitions,
        "stores": [store.name for store in view.operator.stores],
        "provider": view.provider,
        "version": view.version,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "where": finding.where,
        "what": finding.what,
        "fix": finding.fix,
    }


def _batch(batch: BatchHistory) -> dict[str, Any]:
    return {
        "batch_id": batch.batch_id,
        "committed": batch.committed,
        "planned_ms": batch.planned_ms,
        "watermark_ms": batch.watermark_ms,
        "sources": [
            {**_source(each.end), "start": None if each.start is None else each.start.value}
            for each in batch.sources
        ],
        "problem": None if batch.problem is None else str(batch.problem),
    }

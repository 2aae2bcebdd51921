"""What the commands print about a checkpoint: as JSON, and in sentences."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemill.checkpoint.diff import Difference
from tidemill.checkpoint.format.source_offset import SourceOffset
from tidemill.checkpoint.history import BatchHistory
from tidemill.checkpoint.inspection import Inspection, OperatorView
from tidemill.checkpoint.positions import Recognizer
from tidemill.checkpoint.tail import NextStart

SCHEMA_VERSION = 1


def inspect_document(inspection: Inspection) -> dict[str, Any]:
    """Return the JSON of `checkpoint inspect`: that of `verify` without findings, with settings and sizes."""
    return {
        "schema_version": SCHEMA_VERSION,
        **checkpoint_fields(inspection),
        "conf": dict(inspection.conf),
        "operators": [
            {
                **_operator(view),
                "versions": None if view.versions is None else list(view.versions),
                "files": view.files,
                "bytes": view.bytes,
            }
            for view in inspection.operators
        ],
        "problems": [
            {"where": problem.where, "code": problem.code, "what": problem.what}
            for problem in inspection.problems
        ],
    }


def history_document(path: str, batches: Sequence[BatchHistory], recognize: Recognizer) -> dict[str, Any]:
    """Return the JSON of `checkpoint history`, oldest batch first."""
    return {
        "schema_version": SCHEMA_VERSION,
        "path": path,
        "batches": [_batch(batch, recognize) for batch in batches],
    }


def diff_document(a: Inspection, b: Inspection, differences: Sequence[Difference]) -> dict[str, Any]:
    """Return the JSON of `checkpoint diff`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "a": a.path,
        "b": b.path,
        "differences": [
            {"what": difference.what, "name": difference.name, "a": difference.a, "b": difference.b}
            for difference in differences
        ],
        "same": not differences,
    }


def checkpoint_fields(inspection: Inspection) -> dict[str, Any]:
    """Return the fields that `inspect` and `verify` share."""
    start = inspection.next_start
    return {
        "path": inspection.path,
        "query_id": inspection.query_id,
        "offset_log_versions": list(inspection.offset_log_versions),
        "commit_log_versions": list(inspection.commit_log_versions),
        "latest_offset_batch": inspection.latest_offset_batch,
        "latest_committed_batch": inspection.latest_committed_batch,
        "uncommitted_batches": list(inspection.uncommitted_batches),
        "next_start": None if start is None else {"kind": start.kind, "batch_id": start.batch_id},
        "watermark_ms": inspection.watermark_ms,
        "sources": [_source(source, inspection.recognize) for source in inspection.sources],
        "operators": [_operator(view) for view in inspection.operators],
    }


def _source(source: SourceOffset, recognize: Recognizer) -> dict[str, Any]:
    identity = {"name": source.name} if source.name is not None else {"index": source.index}
    return {**identity, "kind": recognize(source).kind, "offset": source.value}


def _operator(view: OperatorView) -> dict[str, Any]:
    return {
        "id": view.operator.id,
        "name": view.operator.name,
        "partitions": view.operator.partitions,
        "stores": [store.name for store in view.operator.stores],
        "provider": view.provider,
        "version": view.version,
    }


def _batch(batch: BatchHistory, recognize: Recognizer) -> dict[str, Any]:
    return {
        "batch_id": batch.batch_id,
        "committed": batch.committed,
        "planned_ms": batch.planned_ms,
        "watermark_ms": batch.watermark_ms,
        "sources": [
            {**_source(source.end, recognize), "start": None if source.start is None else source.start.value}
            for source in batch.sources
        ],
        "problem": None if batch.problem is None else str(batch.problem),
    }


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def describe_time(milliseconds: int) -> str:
    """Return milliseconds since the epoch as ISO-8601 UTC."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def describe_start(start: NextStart | None) -> str:
    """Describe what the next start does."""
    if start is None:
        return "unknown: the end of the logs is unreadable"
    match start.kind:
        case "first_run":
            return "first run: no batch was planned yet"
        case "continue":
            return f"continue: new data becomes batch {start.batch_id}"
        case "repeat_batch":
            return f"repeat batch {start.batch_id}: it was planned and not committed"
        case "no_data_batch":
            return (
                f"continue: batch {start.batch_id} emits the results that the watermark closed; "
                "Spark alone runs it only together with new data"
            )

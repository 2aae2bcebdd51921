"""The ledger: one JSON line a micro-batch, for ever, in a folder that any engine reads as a table.

It is a cache of what the checkpoint and the Delta log say: `reconstructed` makes the lines that a killed
run left out.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.streaming.checkpoint import FileAbsentError, OffsetEntry, read_offset
from pipelines.streaming.delta_log import Commit, commits
from pipelines.streaming.names import StreamName
from pipelines.streaming.records.lake import Lake
from pipelines.streaming.run.results import BatchRecord, Late


def append(lake: Lake, stream: StreamName, records: list[BatchRecord]) -> None:
    """Adds lines to the files of their runs."""
    folder = lake.ledger(stream)
    folder.mkdir(parents=True, exist_ok=True)
    for record in records:
        line = json.dumps({"pipeline": stream.pipeline, "stream": stream.stream, **asdict(record)})
        with (folder / f"{record.run_id}.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def lines(lake: Lake, stream: StreamName, run_id: str | None = None) -> Iterator[BatchRecord]:
    """The ledger's lines, of one run or of all, in no order of runs.

    A last line that a kill cut off is left out: the next run writes it again.
    """
    folder = lake.ledger(stream)
    target = sorted(folder.glob("*.jsonl")) if run_id is None else [folder / f"{run_id}.jsonl"]
    for place in target:
        if not place.exists():
            continue
        for line in place.read_text(encoding="utf-8").splitlines():
            try:
                yield _record(json.loads(line))
            except ValueError:
                continue


def missing(lake: Lake, stream: StreamName, generation: int, last_commit: int, after: int) -> list[int]:
    """Committed batches of a generation that have no line.

    Args:
        lake: The lake.
        stream: The stream.
        generation: The generation.
        last_commit: The last committed batch.
        after: A batch up to which the manifest says that all lines are there.
    """
    written = {line.batch_id for line in lines(lake, stream) if line.generation == generation}
    return [batch for batch in range(after + 1, last_commit + 1) if batch not in written]


def reconstructed(
    checkpoint: Path, table: Path, batches: list[int], *, run_id: str, generation: int, query_id: str
) -> list[BatchRecord]:
    """Lines for committed batches, from the checkpoint and the Delta log.

    Spark keeps the offsets of the last batches only (`minBatchesToRetain`); a batch whose offsets are gone
    gets no line.
    """
    if not batches:
        return []
    by_batch = commits_by_batch(table, query_id, 0)
    records = []
    for batch in batches:
        try:
            offsets = read_offset(checkpoint, batch)
        except FileAbsentError:
            continue
        delta = by_batch.get(batch)
        try:
            before = read_offset(checkpoint, batch - 1) if batch else None
        except FileAbsentError:
            before = None
        note = commit_metadata(delta)
        records.append(
            BatchRecord(
                batch_id=batch,
                run_id=run_id,
                generation=generation,
                query_id=query_id,
                started_at=iso(offsets.timestamp_ms),
                rows_written=delta.rows_written if delta else None,
                rows_quarantined=note.get("rows_quarantined"),
                rows_dropped=note.get("rows_dropped"),
                violations=note.get("violations") or {},
                start_offsets=plain_offsets(before) if before else {},
                end_offsets=plain_offsets(offsets),
                watermark_ms=offsets.watermark_ms or None,
                delta_version=delta.version if delta else None,
                static_versions=note.get("static_versions") or {},
                reconstructed=True,
            )
        )
    return records


def commits_by_batch(table: Path, app_id: str, first_version: int) -> dict[int, Commit]:
    """The commits of a query by batch id, from a table version on."""
    return {
        commit.transactions[app_id]: commit
        for commit in commits(table, first_version)
        if app_id in commit.transactions
    }


def commit_metadata(commit: Commit | None) -> Mapping[str, Any]:
    """What our own writes said in a commit's `userMetadata`; empty where they said nothing."""
    if commit is None or not commit.user_metadata:
        return {}
    try:
        note = json.loads(commit.user_metadata).get("tidemill", {})
    except (ValueError, AttributeError):
        return {}
    return note if isinstance(note, dict) else {}


def plain_offsets(entry: OffsetEntry) -> dict[str, object]:
    """Offsets by source name, as the JSON that Spark wrote."""
    return {
        source.name or str(source.index): None if source.raw is None else json.loads(source.raw)
        for source in entry.sources
    }


def iso(milliseconds: int) -> str:
    """A time in milliseconds since the epoch as ISO-8601 UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def _record(fields: dict[str, Any]) -> BatchRecord:
    fields.pop("pipeline", None)
    fields.pop("stream", None)
    late = fields["late"]
    return BatchRecord(**{**fields, "late": None if late is None else Late(**late)})

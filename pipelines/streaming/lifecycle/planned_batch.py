"""A checkpoint whose first batch is planned: it reads what another checkpoint has read, and nothing more.

Spark executes a batch that is planned and not committed over exactly the range that is planned. A source without a
position begins as a new one does: a topic with its first message, a table with a snapshot, a folder with the files in
the source's own log.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.streaming.backlog.files import logged_files
from pipelines.streaming.checkpoint import OffsetEntry, SourceFile, Tail
from pipelines.streaming.checkpoint.format.source_log import LogEntry, source_folder
from pipelines.streaming.lifecycle.checkpoint_copy import write_source_log
from pipelines.streaming.run import repair

if TYPE_CHECKING:
    from pipelines.streaming.records import StreamRecords


def plan_first_batch(checkpoint: Path, like: Path, entry: OffsetEntry, query_id: str) -> None:
    """Write a checkpoint whose first batch reads everything up to the offsets of another one.

    Args:
        checkpoint: The folder of the new checkpoint.
        like: The other checkpoint.
        entry: The offsets, of a batch of the other checkpoint.
        query_id: The query id of the new checkpoint.
    """
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "commits").mkdir(exist_ok=True)
    _write(checkpoint / "metadata", json.dumps({"id": query_id}, separators=(",", ":")))
    version, header, *_ = (like / "offsets" / str(entry.batch_id)).read_text(encoding="utf-8").split("\n")
    fields = json.loads(header) | {"batchWatermarkMs": 0}
    ends = dict(_ends(checkpoint, like, entry))
    lines = [f"{name}:{offset}" for name, offset in ends.items()]
    text = "\n".join([version, json.dumps(fields, separators=(",", ":")), *lines])
    _write(checkpoint / "offsets" / "0", text)


def plan_next_batch(records: "StreamRecords", tail: Tail, like: Path, entry: OffsetEntry) -> bool:
    """Plan a batch that reads what another checkpoint has read since; return whether there is anything.

    Args:
        records: The records of the checkpoint, all of whose batches are committed.
        tail: The end of it.
        like: The other checkpoint.
        entry: The offsets, of a batch of the other checkpoint.
    """
    if tail.latest_offset is None:
        return False
    checkpoint = Path(tail.path)
    before = {source.key: source.raw for source in tail.latest_offset.sources}
    ends = {name: offset for name, offset in _ends(checkpoint, like, entry) if before.get(name) != offset}
    if ends:
        repair.schedule_batch(checkpoint, tail, records.control, ends)
    return bool(ends)


def _ends(checkpoint: Path, like: Path, entry: OffsetEntry) -> Iterator[tuple[str, str]]:
    """Yield where each source ends; of a file source the files are logged that are not logged yet."""
    for source in entry.sources:
        if source.raw is None:
            continue
        if source.log_offset is None:
            yield source.key, source.raw
            continue
        known = {file.path: file.entry for file in logged_files(checkpoint, source.key)}
        new = [
            file
            for file in logged_files(like, source.key)
            if file.entry <= source.log_offset and file.path not in known
        ]
        last = max(known.values(), default=-1)
        if new:
            folder = checkpoint / source_folder(source.key)
            folder.mkdir(parents=True, exist_ok=True)
            last += 1
            files = [SourceFile(file.path, file.timestamp_ms, last) for file in new]
            write_source_log(folder, LogEntry(last, compact=False), files)
        if last >= 0:
            yield source.key, json.dumps({"logOffset": last}, separators=(",", ":"))


def _write(path: Path, text: str) -> None:
    if not path.exists():  # another attempt has written it
        path.write_text(text, encoding="utf-8")

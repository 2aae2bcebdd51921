"""Lakes as many runs leave them, written by hand: 4 in 10 streams read topics, 4 folders, and 2 Delta tables.

The first stream of each kind has a long past: 10,000 batches, and for folders 100,000 files that it has read.
"""

import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from deltalake import DeltaTable

from tidemill import DeltaAppend, DeltaSource, Feed, Pipeline, Raw
from tidemill.connectors.registry import binding_of
from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.stream import Stream
from tidemill.records.batch import BatchRecord
from tidemill.records.manifest import LastRun, first_manifest
from tidemill.records.stream_records import StreamRecords
from tidemill.target.target import Target

LONG_BATCHES, LONG_FILES = 10_000, 100_000
SHORT_BATCHES, SHORT_FILES = 30, 30
MESSAGES = 5
KEPT_BATCHES = 100  # Spark keeps so many entries of its logs
LONG_AGO = "2026-01-01T00:00:00+00:00"
SCHEMA = {
    "type": "struct",
    "fields": [{"name": "value", "type": "string", "nullable": True, "metadata": {}}],
}


@dataclass(frozen=True, slots=True)
class Declared:
    """A pipeline, and the names of what its streams read."""

    pipeline: Pipeline
    topics: tuple[str, ...]
    folders: tuple[str, ...]
    tables: tuple[str, ...]


def declare(count: int, sources: Path) -> Declared:
    """Return a pipeline with so many independent streams."""
    pipeline = Pipeline("many")
    names: dict[str, list[str]] = {"topic": [], "folder": [], "table": []}
    for number in range(count):
        kind = "topic" if number % 10 < 4 else "folder" if number % 10 < 8 else "table"
        name = f"{kind}_{number:03d}"
        names[kind].append(name)
        source = DeltaSource(path=str(sources / name)) if kind == "table" else Feed(name, format=Raw())
        pipeline.stream(source=source, sink=DeltaAppend(), name=name)(lambda rows: rows)
    return Declared(pipeline, *(tuple(names[kind]) for kind in ("topic", "folder", "table")))


def fill(declared: Declared, target: Target, landing: Path, sources: Path, scratch: Path) -> None:
    """Write what runs of all streams would have left behind; every stream has read everything."""
    long_table = _table(scratch / "long", LONG_BATCHES)
    short_table = _table(scratch / "short", SHORT_BATCHES)
    long_folder = _folder(scratch / "files", LONG_FILES)
    for position, stream in enumerate(declared.pipeline):
        name, is_long = stream.name.stream, position in (0, 4, 8)
        batches = LONG_BATCHES if is_long else SHORT_BATCHES
        query_id = str(uuid4())
        if name in declared.tables:
            _copy(long_table if is_long else short_table, sources / name)
            table_id = DeltaTable(str(sources / name)).metadata().id
            offset = {
                "sourceVersion": 1,
                "reservoirId": str(table_id),
                "reservoirVersion": batches + 1,
                "index": -1,
                "isStartingVersion": False,
            }
        elif name in declared.folders:
            if is_long:
                _copy(long_folder, landing / name)
            else:
                _folder(landing / name, SHORT_FILES)
            offset = {"logOffset": batches - 1}
        else:
            offset = {name: {"0": MESSAGES}}
        checkpoint = Path(target.lake.checkpoint(stream.name, 1).uri())
        _checkpoint(checkpoint, query_id, batches, json.dumps(offset))
        if name in declared.folders:
            _source_log(checkpoint / "sources" / "rows", landing / name, batches - 1)
        _main_table(
            Path(target.lake.table(stream.name).uri), query_id, long_table if is_long else short_table
        )
        _records(stream, target, query_id, batches)


def _table(folder: Path, versions: int) -> Path:
    """Write a table with a commit per batch, of files that do not exist: a tick reads only the log."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    metadata = {
        "metaData": {
            "id": str(uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(SCHEMA),
            "partitionColumns": [],
            "configuration": {},
        }
    }
    _commit(log, 0, [protocol, metadata])
    for version in range(1, versions + 1):
        add = {"path": f"{version}.parquet", "size": 1000, "modificationTime": 1, "dataChange": True}
        stats = json.dumps({"numRecords": 10})
        _commit(log, version, [{"add": {**add, "partitionValues": {}, "stats": stats}}])
    DeltaTable(str(folder)).create_checkpoint()
    return folder


def _commit(log: Path, version: int, actions: list[dict[str, object]]) -> None:
    lines = [json.dumps(action) for action in actions]
    (log / f"{version:020d}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _main_table(folder: Path, query_id: str, original: Path) -> None:
    """Copy a table, and commit the transaction of the last batch."""
    _copy(original, folder)
    version = DeltaTable(str(folder)).version()
    txn = {"txn": {"appId": query_id, "version": version - 1, "lastUpdated": int(time.time() * 1000)}}
    _commit(folder / "_delta_log", version + 1, [txn])


def _copy(original: Path, folder: Path) -> None:
    """Copy a folder, its files as hard links: nothing writes into them."""
    shutil.copytree(original, folder, copy_function=os.link)


def _folder(folder: Path, files: int) -> Path:
    folder.mkdir(parents=True)
    for number in range(files):
        (folder / f"{number:08d}.json").touch()
    return folder


def _checkpoint(checkpoint: Path, query_id: str, batches: int, offset: str) -> None:
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": query_id}), encoding="utf-8")
    header = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})
    for batch in range(max(0, batches - KEPT_BATCHES), batches):
        (checkpoint / "offsets" / str(batch)).write_text(f"v2\n{header}\nrows:{offset}", encoding="utf-8")
        commit = 'v1\n{"nextBatchWatermarkMs":0}'
        (checkpoint / "commits" / str(batch)).write_text(commit, encoding="utf-8")


def _source_log(log: Path, folder: Path, entry: int) -> None:
    log.mkdir(parents=True)
    number = entry - (entry + 1) % 10
    names = sorted(os.listdir(folder))  # noqa: PTH208 - names only, of very many files
    lines = [json.dumps({"path": f"file://{folder}/{name}", "timestamp": 1, "batchId": 0}) for name in names]
    (log / f"{number}.compact").write_text("\n".join(["v1", *lines]), encoding="utf-8")


def _records(stream: Stream, target: Target, query_id: str, batches: int) -> None:
    records = StreamRecords(target.lake, stream.name)
    source = stream.sources["rows"]
    record = SourceRecord(binding=binding_of(source, target), start="log")
    generation = {"query_id": query_id, "ledger_batch": batches - 1}
    identity = {sink.name: dict(sink.identity) for sink in stream.sinks}
    manifest = first_manifest({"rows": record}).with_active(**generation, sinks=identity)
    last_run = LastRun(run_id="run-1", ended_at=LONG_AGO, outcome="updated")
    line = BatchRecord(
        batch_id=batches - 1, run_id="run-1", generation=1, query_id=query_id, started_at=LONG_AGO
    )
    records.write_manifest(type(manifest)(generations=manifest.generations, last_run=last_run))
    records.ledger.append([line])

"""A lake as many runs leave it, written by hand: half of the streams ingest a folder, half read the tables of these.

Of the readers every fifth one keeps state. The first stream that ingests and its reader have a long past.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from uuid import uuid4

from deltalake import DeltaTable

from tests.checkpoint import handmade
from tidemill import DeltaAppend, Feed, Pipeline, QueryOptions, Raw
from tidemill.connectors.registry import binding_of
from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.source import Source
from tidemill.definitions.stream import Stream
from tidemill.records.batch import BatchRecord
from tidemill.records.lease import this_process
from tidemill.records.manifest import LastRun, first_manifest
from tidemill.records.stream_records import StreamRecords
from tidemill.run.tables.versions import with_read_commits
from tidemill.storage.log_end import log_end
from tidemill.storage.table_ref import TableRef
from tidemill.target.target import Target

LONG_BATCHES, BATCHES = 1_500, 37
KEPT_BATCHES = 100  # Spark keeps so many entries of its logs
CHECKPOINT_INTERVAL = 10  # of a table's log; also that of the state's snapshots
PARTITIONS = 2
RUN = "run-1"
LONG_AGO = "2026-01-01T00:00:00+00:00"
SCHEMA = {
    "type": "struct",
    "fields": [{"name": "value", "type": "string", "nullable": True, "metadata": {}}],
}


def declare(count: int) -> Pipeline:
    """Return a pipeline with so many streams."""
    pipeline = Pipeline("many")
    query = QueryOptions(state_store="hdfs")  # as the checkpoints have it

    def declared(source: Source | Stream, name: str) -> Stream:
        return pipeline.stream(source=source, sink=DeltaAppend(), query=query, name=name)(lambda rows: rows)

    names = [f"feed_{number:03d}" for number in range((count + 1) // 2)]
    first = [declared(Feed(name, format=Raw()), name) for name in names]
    for number, stream in enumerate(first[: count // 2]):
        declared(stream, f"table_{number:03d}")
    return pipeline


def keeps_state(stream: Stream) -> bool:
    """Return whether a stream of the pipeline keeps state."""
    kind, _, number = stream.name.stream.partition("_")
    return kind == "table" and int(number) % 5 == 4


def fill(pipeline: Pipeline, target: Target, landing: Path, *, longest: int = LONG_BATCHES) -> None:
    """Write what runs of all streams would have left behind in a lake in a folder; each has read everything.

    Args:
        pipeline: The pipeline.
        target: The target, whose lake is in a folder.
        landing: The folder of the feeds.
        longest: The number of batches of the streams with a long past.
    """
    for stream in pipeline:
        batches = longest if stream.name.stream.endswith("_000") else BATCHES
        query_id = str(uuid4())
        _table(Path(target.lake.table(stream.name).uri), query_id, batches)
        _checkpoint(stream, target, landing, query_id, batches)
        _records(stream, target, query_id, batches)


def _table(folder: Path, query_id: str, batches: int) -> None:
    """Write a table with a commit per batch, of files that do not exist: nothing reads them."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    metadata = {
        "id": str(uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": [],
        "configuration": {},
    }
    _commit(log, 0, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata})
    for version in range(1, batches + 1):
        name = str(uuid4())
        file = {"path": f"{version}.parquet", "size": 1000, "modificationTime": 1, "dataChange": True}
        stats = json.dumps({"numRecords": 10})
        transaction = {"appId": query_id, "version": version - 1, "lastUpdated": 1}
        info = {"commitInfo": {"operation": "STREAMING UPDATE", "txnId": name}}
        add = {"add": {**file, "partitionValues": {}, "stats": stats}}
        _commit(log, version, info, {"txn": transaction}, add)
        # Delta writes such a file after each commit.
        checksum = {"txnId": name, "setTransactions": [transaction], "metadata": metadata}
        (log / f"{version:020d}.crc").write_text(json.dumps(checksum), encoding="utf-8")
        if version == batches - batches % CHECKPOINT_INTERVAL:
            DeltaTable(str(folder)).create_checkpoint()


def _commit(log: Path, version: int, *actions: dict[str, object]) -> None:
    content = "".join(f"{json.dumps(action)}\n" for action in actions)
    (log / f"{version:020d}.json").write_text(content, encoding="utf-8")


def _checkpoint(stream: Stream, target: Target, landing: Path, query_id: str, batches: int) -> None:
    """Write a checkpoint as Spark writes one on an object store: without checksum files."""
    folder = Path(target.lake.checkpoint(stream.name, 1).uri())
    handmade.write(folder / "metadata", json.dumps({"id": query_id}))
    for batch in range(max(0, batches - KEPT_BATCHES), batches):
        handmade.offsets(folder, batch, f"rows:{_offset(stream, target, batch)}", named=True)
        handmade.commit(folder, batch)
    if not stream.upstreams:
        _files(folder / "sources" / "rows", landing / stream.name.stream, batches)
    if keeps_state(stream):
        handmade.operator(folder, partitions=PARTITIONS)
        handmade.schema(folder, "string")
        for partition in range(PARTITIONS):
            for version in range(max(1, batches - KEPT_BATCHES), batches + 1):
                handmade.delta(folder, version, partition=partition)
                if version % CHECKPOINT_INTERVAL == 0:
                    handmade.delta(folder, version, partition=partition, suffix="snapshot")
    for checksums in folder.rglob(".*.crc"):
        checksums.unlink()


def _offset(stream: Stream, target: Target, batch: int) -> str:
    for upstream in stream.upstreams:
        offset = {
            "sourceVersion": 1,
            "reservoirId": _id(target.lake.table(upstream)),
            "reservoirVersion": batch + 2,
            "index": -1,
            "isStartingVersion": False,
        }
        return json.dumps(offset)
    return json.dumps({"logOffset": batch})


def _id(table: TableRef) -> str:
    end = log_end(table.log)
    assert end is not None  # noqa: S101 - its table has been written
    return end.table_id


def _files(log: Path, folder: Path, batches: int) -> None:
    """Write a file per batch, and the log of the file source, which has read them."""
    folder.mkdir(parents=True)
    log.mkdir(parents=True)
    last = batches - 1 - batches % CHECKPOINT_INTERVAL
    names = [f"{number:08d}.json" for number in range(batches)]
    entries = [
        json.dumps({"path": f"file://{folder}/{name}", "timestamp": 1, "batchId": number})
        for number, name in enumerate(names)
    ]
    for name in names:
        (folder / name).touch()
    (log / f"{last}.compact").write_text("\n".join(["v1", *entries[: last + 1]]), encoding="utf-8")
    for number in range(last + 1, batches):
        (log / str(number)).write_text(f"v1\n{entries[number]}", encoding="utf-8")


def _records(stream: Stream, target: Target, query_id: str, batches: int) -> None:
    records = StreamRecords(target.lake, stream.name)
    record = SourceRecord(binding=binding_of(stream.sources["rows"], target), start="log")
    sources = with_read_commits(stream, target.lake, records.snapshot().tail, {"rows": record})
    manifest = first_manifest(sources).with_active(
        query_id=query_id,
        ledger_batch=batches - 1,
        table_id=_id(target.lake.table(stream.name)),
        sinks={sink.name: dict(sink.identity) for sink in stream.sinks},
    )
    last_run = LastRun(run_id=RUN, ended_at=LONG_AGO, outcome="updated")
    records.write_manifest(replace(manifest, last_run=last_run))
    line = BatchRecord(
        batch_id=batches - 1, run_id=RUN, generation=1, query_id=query_id, started_at=LONG_AGO, state_rows=10
    )
    records.ledger.append([line])
    released = replace(this_process(RUN), released=True)
    records.control.create("lease/7.json", json.dumps(asdict(released)).encode())

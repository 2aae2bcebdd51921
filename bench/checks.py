"""How long the checks of one stream take after 10,000 batches: the first time, and after ten batches more.

Nothing runs: ledger, checkpoint and table are written as 10,000 runs of one batch leave them.
"""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from uuid import uuid4

from deltalake import DeltaTable

from tidemill import DeltaAppend, Feed, Json, Pipeline
from tidemill.checks.evaluation import evaluate
from tidemill.records.batch import BatchRecord
from tidemill.records.manifest import first_manifest
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.lake import Lake
from tidemill.target.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCHES = 10_000
KEPT = 100
MORE = 10
SCHEMA = {
    "type": "struct",
    "fields": [{"name": "n", "type": "integer", "nullable": True, "metadata": {}}],
}

shop = Pipeline("shop")


@shop.stream(source=Feed("orders", Json("n INT")), sink=DeltaAppend())
def orders(events: "DataFrame") -> "DataFrame":
    """Every order."""
    return events


def commit(log: Path, version: int, query_id: str) -> None:
    """Write the commit of one batch, or that which created the table."""
    info = {
        "timestamp": 1_790_000_000_000 + version,
        "operation": "WRITE",
        "operationMetrics": {"numOutputRows": "0"},
    }
    actions: list[dict[str, object]] = [{"commitInfo": info}]
    if version:
        actions.append({"txn": {"appId": query_id, "version": version - 1, "lastUpdated": 1}})
    else:
        table = {"id": str(uuid4()), "format": {"provider": "parquet", "options": {}}, "partitionColumns": []}
        actions.append({"metaData": {**table, "schemaString": json.dumps(SCHEMA), "configuration": {}}})
        actions.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")


def batches(lake: Lake, query_id: str, first: int, end: int) -> None:
    """Write what runs of one batch each leave behind."""
    checkpoint, records = Path(lake.checkpoint(orders.name, 1).uri()), StreamRecords(lake, orders.name)
    log = Path(lake.table(orders.name).uri) / "_delta_log"
    for batch in range(first, end):
        commit(log, batch + 1, query_id)
        offset = f'events:{{"logOffset":{batch}}}'
        files = {
            f"offsets/{batch}": f'v2\n{{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{{}}}}\n{offset}',
            f"commits/{batch}": 'v1\n{"nextBatchWatermarkMs":0}',
        }
        for name, content in files.items() if batch >= end - KEPT else ():
            (checkpoint / name).write_text(content, encoding="utf-8")
        line = BatchRecord(
            batch_id=batch,
            run_id=f"run-{batch}",
            generation=1,
            query_id=query_id,
            started_at="",
            rows_read=0,
            rows_written=0,
            start_offsets={"events": {"logOffset": batch - 1}} if batch else {},
            end_offsets={"events": {"logOffset": batch}},
            delta_version=batch + 1,
        )
        records.ledger.append([line])
    source = checkpoint / "sources" / "events"
    source.mkdir(parents=True, exist_ok=True)
    (source / f"{end - 1}.compact").write_text("v1", encoding="utf-8")
    DeltaTable(str(lake.table(orders.name))).create_checkpoint()
    manifest = first_manifest({}).with_active(query_id=query_id, ledger_batch=end - 1)
    records.write_manifest(manifest.with_last_run(f"run-{end - 1}", "updated", None))


def main() -> None:
    """Print the time of each evaluation."""
    with TemporaryDirectory() as root:
        lake, query_id = Lake.at(Path(root) / "lake"), str(uuid4())
        landing = Path(root) / "landing"
        (landing / "orders").mkdir(parents=True)
        checkpoint = Path(lake.checkpoint(orders.name, 1).uri())
        for folder in ("offsets", "commits"):
            (checkpoint / folder).mkdir(parents=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": query_id}), encoding="utf-8")
        log = Path(lake.table(orders.name).uri) / "_delta_log"
        log.mkdir(parents=True)
        commit(log, 0, query_id)
        target = Target(name="bench", lake=lake, default_binding=landing)
        batches(lake, query_id, 0, BATCHES)
        for what, more in (("first", 0), ("again", 0), (f"{MORE} batches later", MORE)):
            if more:
                batches(lake, query_id, BATCHES, BATCHES + more)
            started = time.perf_counter()
            results = {check.name: check for check in evaluate(orders, target, datetime.now(UTC))}
            seconds = time.perf_counter() - started
            compared = results["exactly_once"]
            statuses = ", ".join(f"{name} {result.status}" for name, result in results.items())
            print(
                f"{what}: {seconds:.3f} s, {compared.numbers['batches_compared']} batches compared ({statuses})"
            )


if __name__ == "__main__":
    main()

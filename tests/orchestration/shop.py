"""A small pipeline in its own folder, with its lake in every state that `status` reports."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from tidemill.connectors.source_record import SourceRecord
from tidemill.errors import TerminalError
from tidemill.records.batch import BatchRecord
from tidemill.records.manifest import first_manifest
from tidemill.records.stream_records import StreamRecords
from tidemill.target.resolve import ResolvedTarget, resolve
from tidemill.text.names import StreamName

SOURCE = '''
from tidemill import DeltaAppend, Feed, Pipeline, Json

shop = Pipeline("shop", description="Orders.")


@shop.stream(source=Feed("orders", Json("n INT")), sink=DeltaAppend(), owners=["team:shop"], backfill_by="day")
def orders(events):
    """Every order."""
    return events


@shop.stream(source=orders.with_watermark("at", "1 hour"), sink=DeltaAppend())
def unique(rows):
    """Each order once."""
    return rows.dropDuplicatesWithinWatermark(["n"])
'''
ORDERS = StreamName("shop", "orders")
UNIQUE = StreamName("shop", "unique")


@dataclass(frozen=True)
class Shop:
    """A project with one pipeline of two streams.

    Attributes:
        root: Its folder, with tidemill.toml, a landing folder and a lake.
    """

    root: Path

    @classmethod
    def make(cls, root: Path, monkeypatch) -> "Shop":
        """Create the project, as the one that commands find."""
        module = f"shop_{uuid4().hex[:8]}"
        (root / f"{module}.py").write_text(SOURCE, encoding="utf-8")
        config = f'pipelines = ["{module}:shop"]\n[targets.dev]\nlake = "lake"\nlanding = "landing"\n'
        (root / "tidemill.toml").write_text(config, encoding="utf-8")
        (root / "landing" / "orders").mkdir(parents=True)
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.delenv("TIDEMILL_TARGET", raising=False)
        monkeypatch.setenv("TIDEMILL_CONFIG", str(root / "tidemill.toml"))
        return cls(root)

    @property
    def target(self) -> ResolvedTarget:
        return resolve()

    def land(self, *names: str) -> None:
        """Write files for the feed."""
        for name in names:
            (self.root / "landing" / "orders" / name).write_text('{"n": 1}\n', encoding="utf-8")

    def has_run(self, *names: str, failed: str = "") -> Path:
        """Write what one run of `orders` over these files leaves behind, and return the checkpoint."""
        self.land(*names)
        lake = self.target.lake
        checkpoint = Path(lake.checkpoint(ORDERS, 1).uri())
        query_id = str(uuid4())
        addresses = [f"file://{self.root}/landing/orders/{name}" for name in names]
        logged = [json.dumps({"path": address, "timestamp": 1, "batchId": 0}) for address in addresses]
        files = {
            "metadata": json.dumps({"id": query_id}),
            "sources/events/0": "\n".join(["v1", *logged]),
            "offsets/0": 'v2\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\nevents:{"logOffset":0}',
            "commits/0": 'v1\n{"nextBatchWatermarkMs":60000}',
        }
        for name, content in files.items():
            path = checkpoint / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        binding = {"kind": "file", "path": f"{self.root}/landing/orders", "from_lake": "../landing/orders"}
        sources = {"events": SourceRecord(binding=binding)}
        manifest = first_manifest(sources).with_active(query_id=query_id, ledger_batch=0)
        error = TerminalError(failed, stream=ORDERS)
        ended = (
            manifest.with_failure("run-1", error, "here")
            if failed
            else manifest.with_success("run-1", "updated")
        )
        StreamRecords(lake, ORDERS).write_manifest(ended)
        record = BatchRecord(
            batch_id=0, run_id="run-1", generation=1, query_id=query_id, started_at="", state_rows=7
        )
        StreamRecords(lake, ORDERS).ledger.append([record])
        return checkpoint

"""A small pipeline and copies of the lake that Spark has written for it, to be damaged."""

import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from tidemill import Checks, DeltaAppend, Expect, Feed, Json, Pipeline, QueryOptions
from tidemill.checks.evaluation import evaluate
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.lake import Lake
from tidemill.testing import Scratch

NOW = datetime.now(UTC).replace(microsecond=0)

shop = Pipeline("shop", checks=Checks(late_share=0.5))


@shop.stream(
    source=Feed("orders", Json("id STRING, n INT, at TIMESTAMP"), rules={"has_id": "id <> ''"}),
    sink=DeltaAppend(),
    expect=[Expect("small", "n < 100", on_violation="drop")],
)
def orders(events):
    return events


@shop.stream(
    source=orders.with_watermark("at", "1 hour"), sink=DeltaAppend(), query=QueryOptions(shuffle_partitions=2)
)
def unique(orders):
    return orders.dropDuplicatesWithinWatermark(["id"])


STREAMS = {stream.name: stream for stream in shop}


def order(number: int, *, at: datetime, n: int = 1) -> dict[str, object]:
    return {"id": f"o-{number}", "n": n, "at": at.isoformat()}


def arrivals(run: int) -> list[object]:
    """Return the records before a run: 4 orders, one of them twice, one too large, one without an id, a blank line."""
    at = NOW - timedelta(hours=6 - run)
    few = [order(10 * run + number, at=at) for number in range(3)]
    return [*few, few[0], order(10 * run + 9, at=at, n=500), {"n": 1}, ""]


@dataclass(frozen=True)
class CheckLake:
    """A lake with its landing folder.

    Attributes:
        root: The folder that has both.
    """

    root: Path

    @property
    def lake(self) -> Lake:
        return Lake.at(self.root / "lake")

    def scratch(self, engine=None) -> Scratch:
        """Return the runs in it; their numbers and those of their files follow the ones that are there."""
        landing = self.root / "landing"
        files = len(list(landing.glob("orders/*.json")))
        return Scratch(
            lake=self.lake, landing=landing, engine=engine, _files=count(files + 1), _runs=count(files + 1)
        )

    def copy(self, root: Path) -> "CheckLake":
        shutil.copytree(self.root, root)
        return CheckLake(root)

    def checkpoint(self, stream) -> Path:
        return Path(self.lake.checkpoint(stream.name, 1).uri())

    def log(self, stream, sink: str = "main") -> Path:
        return Path(self.lake.table(stream.name, sink).uri) / "_delta_log"

    def records(self, stream) -> StreamRecords:
        return StreamRecords(self.lake, stream.name)

    def ledger_lines(self, stream) -> list[Path]:
        return sorted(Path(self.lake.ledger(stream.name).uri()).glob("*.jsonl"))

    def check(self, stream, *names, now=None, checks=None, result=None):
        """Evaluate checks; one result where one is named."""
        declared = stream if checks is None else replace(stream, checks=checks)
        target = self.scratch().target
        results = evaluate(
            declared, target, now or datetime.now(UTC), names=names or None, streams=STREAMS, result=result
        )
        return results[0] if len(names) == 1 else {check.name: check for check in results}


def without_version(log: Path, version: int) -> None:
    """Remove one version of a table's log."""
    for name in (f"{version:020d}.json", f".{version:020d}.json.crc", f"{version:020d}.crc"):
        (log / name).unlink(missing_ok=True)


def flip(path: Path, position: int = -5) -> None:
    """Flip one byte of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(bytes(data))

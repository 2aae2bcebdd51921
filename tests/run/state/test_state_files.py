"""The files of the state: which snapshots short runs leave, and that what is old is removed."""

import hashlib
from pathlib import Path

import pytest

from tidemill import DeltaAppend, Feed, Json, Pipeline, QueryOptions
from tidemill.checkpoint import changes_to_apply
from tidemill.testing import multiset

KEEP = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
}
BATCHES = 12


@pytest.mark.campaign
def test_a_short_run_writes_snapshots_and_removes_old_state(scratch):
    pipeline = Pipeline("shop")
    feed = Feed("orders", format=Json("id INT, at TIMESTAMP"))
    # A partition per order is a file per order, and so a batch of the reader.
    sink = DeltaAppend(partition_by=["id"])
    orders = pipeline.stream(source=feed, sink=sink, name="orders")(lambda events: events)
    unique = pipeline.stream(
        source=orders.limited(max_files_per_batch=1).with_watermark("at", "1 day"),
        sink=DeltaAppend(),
        name="unique",
        query=QueryOptions(options=KEEP),
    )(lambda orders: orders.dropDuplicatesWithinWatermark(["id"]).select("id"))
    events = [{"id": number, "at": "2026-01-01T00:00:00Z"} for number in range(BATCHES)]
    scratch.run(orders, [events + events])
    scratch.run(unique)
    assert scratch.rows(unique) == multiset((number,) for number in range(BATCHES))
    partition = scratch.checkpoint(unique.name) / "state" / "0" / "0"
    kinds = [path.suffix for path in partition.iterdir() if not path.name.startswith(".")]
    assert ".zip" in kinds, "a snapshot of the state"
    assert 0 < kinds.count(".changelog") < BATCHES / 2


@pytest.mark.campaign
@pytest.mark.parametrize(("rows", "snapshots"), [(100_000, True), (100, False)])
def test_a_run_after_a_large_batch_writes_a_snapshot_of_the_state(scratch, rows, snapshots):
    pipeline = Pipeline("shop")
    feed = Feed("orders", format=Json("id STRING, at TIMESTAMP"))
    orders = pipeline.stream(source=feed, sink=DeltaAppend(), name="orders")(lambda events: events)
    unique = pipeline.stream(
        source=orders.with_watermark("at", "1 day"),
        sink=DeltaAppend(),
        name="unique",
        query=QueryOptions(shuffle_partitions=2),
    )(lambda orders: orders.dropDuplicatesWithinWatermark(["id"]).select("id"))
    ids = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(rows + 3)]
    state = scratch.checkpoint(unique.name) / "state"

    def run(few: list[str]) -> None:
        scratch.run(orders, [[{"id": one, "at": "2026-01-01T00:00:00Z"} for one in few]])
        scratch.run(unique)

    run(ids[:rows])
    assert not list(state.rglob("*.zip"))
    for number in range(3):  # the thread that writes a snapshot may come too late for a run
        run(ids[rows - 5 : rows + number + 1])
    assert bool(list(state.rglob("*.zip"))) == snapshots
    assert changes_to_apply(scratch.checkpoint(unique.name)) < 100_000
    assert scratch.rows(unique) == multiset((one,) for one in ids)


def test_changes_to_apply_are_those_after_the_newest_snapshot_of_each_store(tmp_path):
    def write(store: str, **sizes: int) -> None:
        folder = Path(tmp_path, "state", store)
        folder.mkdir(parents=True)
        for name, size in sizes.items():
            (folder / name.replace("v", "").replace("__", ".")).write_bytes(b"x" * size)

    assert changes_to_apply(tmp_path) == 0
    write("0/0", v1__changelog=1, v2__zip=1000, v2__changelog=10, v3__changelog=100, v4__changelog=1000)
    write("0/1", v1__changelog=20_000)
    write("1/0/left", v1__delta=300_000, v2__snapshot=5)
    assert changes_to_apply(tmp_path) == 21_100

"""The files of the state: a run that is shorter than a minute leaves snapshots and removes what is old."""

from pipelines.streaming import DeltaAppend, Feed, Pipeline, QueryOptions, from_json
from pipelines.streaming.testing import multiset

KEEP = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
}
BATCHES = 12


def test_a_short_run_writes_snapshots_and_removes_old_state(scratch):
    pipeline = Pipeline("shop")
    feed = Feed("orders", value=from_json("id INT, at TIMESTAMP"))
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

"""Backfills with a lookback: only what is close to the range is read, and the result is that of reading everything."""

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import write_deltalake
from pyspark.sql import functions as F

from tests.support.raising import raises
from tidemill import DeltaAppend, Feed, Json, Pipeline
from tidemill.connectors.kafka.position import TopicPosition
from tidemill.operations.core.steps import staging_records
from tidemill.operations.replay.backfill import backfill
from tidemill.records.stream_records import StreamRecords
from tidemill.storage import delta_log
from tidemill.storage.table_ref import TableRef
from tidemill.target.target import KafkaCluster, TopicBinding
from tidemill.testing import multiset
from tidemill.text.names import StreamName

EVENT = "id STRING, amount BIGINT, at TIMESTAMP"
FIRST = datetime(2024, 1, 1, tzinfo=UTC)  # no broker takes messages of the future
HOUR = timedelta(hours=1)
RANGE = {"begin": "2024-01-03", "end": "2024-01-04"}
EMPTY = {"begin": "2024-03-01", "end": "2024-03-02"}
MODULE = "tidemill.operations.core.steps"


def shop(*, least=0, extra=0, lookback=None) -> Pipeline:
    """An ingest stream and the sums per hour; the arguments are what the code changes."""
    pipeline = Pipeline("shop")

    @pipeline.stream(
        source=Feed("orders", format=Json(EVENT), rules={"enough": f"amount > {least}"}),
        sink=DeltaAppend(),
        backfill_by="day",
        lookback=lookback,
    )
    def orders(events):
        return events.withColumn("day", F.to_date("at")).withColumn("amount", F.col("amount") + extra)

    @pipeline.stream(
        source=orders.with_watermark("at", "2 hours"),
        sink=DeltaAppend(),
        backfill_by="start",
        lookback=lookback,
    )
    def hours(orders):
        sums = orders.groupBy(F.window("at", "1 hour").alias("w")).agg(
            (F.sum("amount") * F.lit(1 + extra)).alias("amount")
        )
        return sums.select("w.start", "amount")

    return pipeline


def events_of(day):
    """Events of one day, four hours apart: amounts 0 to 5."""
    start = FIRST + timedelta(days=day)
    return [{"id": f"{day}-{n}", "amount": n, "at": (start + 4 * n * HOUR).isoformat()} for n in range(6)]


def row(event, *, extra=0):
    return event["id"], event["amount"] + extra, datetime.fromisoformat(event["at"])


def rows_of(days, *, changed, least, extra):
    """The table of these days in plain Python, with the changed code for one of them."""
    expected = []
    for day in days:
        bound, more = (least, extra) if day == changed else (0, 0)
        expected += [row(event, extra=more) for event in events_of(day) if event["amount"] > bound]
    return multiset(expected)


def arrive(scratch, day, events=None, *, at=None):
    """Drop a file that was written at noon of its day, or at another time."""
    path = scratch.drop_file("orders", events_of(day) if events is None else events)
    seconds = (at or FIRST + timedelta(days=day, hours=12)).timestamp()
    os.utime(path, (seconds, seconds))
    return path


def again(scratch, stream, **flags):
    return backfill(stream, scratch.target, scratch.engine, **(RANGE | flags))


@pytest.mark.campaign
def test_only_files_near_the_range_are_read_and_a_late_row_stops_it_by_name(scratch, monkeypatch):
    first = shop()["orders"]
    unread = {"id": "unread", "amount": 0, "at": "2024-01-03T10:00:00+00:00"}
    files = [arrive(scratch, day, events_of(day) + [unread] * (day == 4)) for day in range(6)]
    scratch.run(first)
    files[0].unlink()
    files[5].write_text("\x00 this is no record any more\n")
    changed = shop(least=-1, extra=10, lookback="1 day")["orders"]
    quarantined = scratch.quarantined(changed)
    plan = again(scratch, changed, dry_run=True)
    assert "That is 3 of 6 files of feed orders." in plan.effects
    suggestion = "A lookback, such as --lookback 2d, reads only what is that close to the range."
    assert suggestion not in plan.effects
    assert suggestion in again(scratch, shop()["orders"], dry_run=True).effects
    assert StreamRecords(scratch.lake, changed.name).operation() is None

    late = {"id": "late", "amount": 9, "at": "2024-01-03T09:00:00+00:00"}
    with monkeypatch.context() as patched:

        def meanwhile(*_, **__):
            arrive(scratch, 5, [late], at=FIRST + timedelta(days=4, hours=11))
            scratch.run(first)

        patched.setattr(sys.modules[MODULE], "wait_until_free", meanwhile)
        version = scratch.lake.table(first.name).log.latest_version() + 1
        with raises("lookback-too-short", "1 row of the range", "1 day", "000007.json (1 row)"):
            again(scratch, changed)
    assert scratch.lake.table(first.name).log.latest_version() == version, "only the live batch"
    assert scratch.quarantined(changed) == quarantined

    with raises("lookback-too-short", "000007.json"):
        again(scratch, changed)
    done = again(scratch, changed, lookback="34 hours 60 minutes")
    assert "That is 4 of 7 files of feed orders." in done.effects, "files at the very end of it count"
    expected = rows_of(range(6), changed=2, least=-1, extra=10) + multiset([row(late, extra=10)])
    assert scratch.rows(changed, "id", "amount", "at") == expected
    refused = [json.loads(raw)["amount"] for (raw,) in scratch.quarantined(changed, "raw").elements()]
    assert refused == [0] * 6, "those of other days, and the one of this day that was not read"
    assert "had 0 rows and has 0 rows" in again(scratch, changed, **EMPTY).outcome
    assert scratch.rows(changed, "id", "amount", "at") == expected


@pytest.mark.campaign
def test_only_messages_near_the_range_are_read(scratch, broker):
    topic = f"t-{uuid4().hex[:8]}"
    broker.create_topic(topic, partitions=2)
    scratch.bindings["orders"] = TopicBinding(KafkaCluster(bootstrap=broker.bootstrap), topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for day in range(6):
        for event in events_of(day):
            at = int(datetime.fromisoformat(event["at"]).timestamp() * 1000)
            # The second partition has nothing of the days that are read.
            producer.produce(topic, json.dumps(event), partition=int(day in (0, 5)), timestamp=at)
    assert producer.flush(30) == 0
    scratch.run(shop()["orders"])
    removed = [TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 4)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records(removed).values():
        future.result(30)

    changed = shop(least=2, extra=10, lookback="12 hours")["orders"]
    done = again(scratch, changed, keep_staging=True)
    assert f"That is messages 3 to 15 of {topic}-0." in done.effects, (
        "the first of day 3 to the middle of day 4"
    )
    expected = rows_of(range(6), changed=2, least=2, extra=10)
    assert scratch.rows(changed, "id", "amount", "at") == expected
    (operation,) = StreamRecords(scratch.lake, changed.name).operations()
    staged = staging_records(
        StreamRecords(scratch.lake, changed.name), operation, own_checkpoint=True
    ).snapshot()
    assert TopicPosition.of(staged.tail.committed_offsets.source("events")).partitions == {
        topic: {0: 16, 1: 6}
    }
    assert "had 0 rows and has 0 rows" in again(scratch, changed, **EMPTY).outcome
    scratch.run(shop()["orders"])
    assert scratch.rows(changed, "id", "amount", "at") == expected, "the live stream continues where it was"


def write_orders(table, day):
    """Write the orders of a day as one commit at noon."""
    columns = zip(*map(row, events_of(day)), strict=True)
    types = (pa.string(), pa.int64(), pa.timestamp("us", "UTC"))
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    write_deltalake(str(table), pa.table(arrays, names=["id", "amount", "at"]), mode="append")
    path = table / "_delta_log" / f"{TableRef.at(table).log.latest_version():020d}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] = int(
                (FIRST + timedelta(days=day, hours=12)).timestamp() * 1000
            )
    path.write_text("\n".join(map(json.dumps, actions)))


def test_only_versions_near_the_range_are_read_and_windows_close_as_in_the_live_stream(scratch):
    hours, changed = shop()["hours"], shop(extra=1, lookback="11 hours")["hours"]
    table = Path(scratch.lake.table(StreamName("shop", "orders")).uri)
    for day in range(6):
        write_orders(table, day)
    scratch.run(hours)
    for version in (0, 1, 3, 4, 5):
        actions = TableRef.at(table).log.actions(version) or []
        (file,) = (file["path"] for kind, file in delta_log.by_kind(actions) if kind == "add")
        (table / file).write_bytes(b"this is no parquet file any more")
    done = again(scratch, changed)
    assert "That is version 2 of shop/orders." in done.effects
    windows = [(day, row(event)) for day in range(6) for event in events_of(day)]
    expected = [(at, amount * (1 + (day == 2))) for day, (_, amount, at) in windows]
    # The last event of all, at 20:00, is in a window that is open; that of the range is closed by the live stream.
    assert scratch.rows(hours) == multiset(expected[:-1])
    assert "had 0 rows and has 0 rows" in again(scratch, changed, **EMPTY).outcome
    with raises("lookback-too-short", "5 rows"):
        again(scratch, changed, lookback="0 seconds", begin="2024-01-02T13:00", end="2024-01-03T11:00")

"""The records of a stream whose lake is in memory: no file system, no JVM."""

from dataclasses import replace

import pytest

from tests.checkpoint import handmade
from tests.checkpoint.recognized import inspect, verify
from tidemill.checkpoint.write import CheckpointWriter
from tidemill.records.batch import BatchCounts
from tidemill.records.manifest import first_manifest
from tidemill.records.stream_records import SinkTable, StreamRecords
from tidemill.storage.lake import Lake
from tidemill.text.names import StreamName


@pytest.fixture
def records(store, tmp_path):
    """A stream with four committed batches, the last of which moved the watermark for nothing."""
    records = StreamRecords(Lake(store), StreamName("shop", "orders"))
    CheckpointWriter(records.checkpoint(1)).copy_named(handmade.stateful(tmp_path), {"0": "orders"})
    records.write_manifest(first_manifest({}).with_active(query_id=handmade.QUERY_ID))
    return records


def test_a_stream_that_never_ran_has_an_empty_tail(store):
    snapshot = StreamRecords(Lake(store), StreamName("shop", "orders")).snapshot()
    assert (snapshot.manifest, snapshot.tail.next_start.kind) == (None, "first_run")


def test_the_tail_is_that_of_the_active_checkpoint(records):
    snapshot = records.snapshot()
    assert (snapshot.last_commit, snapshot.next_batch, snapshot.next_watermark_ms) == (3, 4, 30)
    assert snapshot.tail.path == snapshot.checkpoint.uri() == f"{records.lake.uri}/checkpoints/shop/orders/1"
    assert verify(snapshot.checkpoint, level="full").sound
    assert inspect(snapshot.checkpoint).operators[0].files == 8


@pytest.mark.parametrize(("in_table", "newest"), [(2, 3), (1, 1), (3, 3), (4, 4)])
def test_a_batch_that_had_nothing_to_write_belongs_to_the_table_that_it_follows(records, in_table, newest):
    """The third batch has no commit; a table that is older than the second one was restored."""
    records.add_counts(1, 3, BatchCounts(query_id=handmade.QUERY_ID, follows=2))
    table = SinkTable(records.table(), "id", version=7, newest_batch=in_table)
    assert records.newest_batch(table, records.snapshot().tail, generation=1) == newest


def test_only_a_batch_that_ends_where_the_last_one_ended_reads_no_rows(records):
    snapshot = records.snapshot()
    snapshot.writer().schedule_batch(snapshot.tail)
    tail = records.snapshot().tail
    assert tail.plans_no_rows
    further = replace(tail.latest_offset.sources[0], raw='{"logOffset": 99}')
    assert not replace(tail, latest_offset=replace(tail.latest_offset, sources=(further,))).plans_no_rows
    assert not replace(records, stream=StreamName("shop", "other")).snapshot().tail.plans_no_rows


def test_a_batch_that_is_scheduled_is_the_next_one_and_has_a_copy_in_the_control_files(records):
    snapshot = records.snapshot()
    snapshot.writer().schedule_batch(snapshot.tail)
    assert records.snapshot().tail.next_start.kind == "repeat_batch"
    assert records.control.read("repairs/1-offsets-4") == snapshot.checkpoint.read("offsets/4")

"""The writer of a checkpoint's files, on checkpoints written by hand; what Spark does with them is in tests/run."""

import json

import pytest

from tests.checkpoint import handmade
from tests.checkpoint.copied import copied
from tests.checkpoint.recognized import inspect, verify
from tidemill.checkpoint import file_source_paths, read_offset, read_tail
from tidemill.checkpoint.write import CheckpointWriter, batches_to_copy, keeps_paths
from tidemill.storage.local_store import LocalStore
from tidemill.storage.memory_store import MemoryStore

OTHER_ID = "11111111-2222-3333-4444-555555555555"


@pytest.fixture(params=["local", "memory"])
def lake(request, tmp_path):
    """A lake with a checkpoint of plain Spark: four committed batches of a file source."""
    store = LocalStore(tmp_path / "lake") if request.param == "local" else MemoryStore()
    copied(handmade.stateful(tmp_path / "plain"), store.below("plain"))
    return store


@pytest.fixture
def checkpoint(lake):
    """The same, and its source is called `orders`."""
    CheckpointWriter(lake.below("1")).copy_named(lake.below("plain"), {"0": "orders"})
    return lake.below("1")


@pytest.fixture
def writer(lake, checkpoint):
    return CheckpointWriter(checkpoint, lake.below("control"), "test")


def errors(checkpoint):
    return [finding for finding in verify(checkpoint, level="full").findings if finding.severity == "error"]


def test_a_copy_of_plain_sparks_checkpoint_has_names_for_its_sources(checkpoint):
    assert errors(checkpoint) == []
    assert read_tail(checkpoint).query_id == handmade.QUERY_ID
    assert read_offset(checkpoint, 3).offsets == {"orders": '{"logOffset": 3}'}
    assert len(list(file_source_paths(checkpoint, "orders"))) == 4


def test_a_copy_begins_again_where_one_was_killed(checkpoint, lake):
    checkpoint.create("offsets/9", b"left behind")
    CheckpointWriter(checkpoint).copy_named(lake.below("plain"), {"0": "orders"})
    assert errors(checkpoint) == []


def test_a_scheduled_batch_repeats_the_offsets_under_the_watermark_of_the_last_commit(
    checkpoint, writer, lake
):
    assert writer.schedule_batch(read_tail(checkpoint)) == 4
    entry = read_offset(checkpoint, 4)
    assert (entry.offsets, entry.watermark_ms) == ({"orders": '{"logOffset": 3}'}, 30)
    (copy,) = lake.walk("control/repairs")
    assert lake.read(copy.key) == checkpoint.read("offsets/4")


def test_a_batch_that_is_planned_is_not_planned_again(checkpoint, writer):
    tail = read_tail(checkpoint)
    writer.schedule_batch(tail, {"orders": '{"logOffset":3}'})
    planned = checkpoint.read("offsets/4")
    with pytest.raises(FileExistsError):
        writer.schedule_batch(tail, watermark_ms=99)
    assert checkpoint.read("offsets/4") == planned


def test_changed_offsets_leave_a_copy_of_what_they_replace(checkpoint, writer):
    checkpoint.create("offsets/.3.crc", b"its checksums")
    replaced = checkpoint.read("offsets/3")
    writer.change_offsets(lambda offsets: {**offsets, "orders": None})
    assert [read_offset(checkpoint, batch).offsets["orders"] for batch in (1, 2, 3)] == [
        '{"logOffset": 1}',
        None,
        None,
    ]
    assert writer.copies.read("offsets/3") == replaced
    assert ".3.crc" not in checkpoint.names("offsets")
    assert writer.copies.read("offsets/.3.crc") == b"its checksums"


def test_an_edit_that_changes_nothing_leaves_no_copy(writer):
    writer.change_offsets(lambda offsets: offsets)
    writer.change_source_log("orders", lambda address: address)
    assert writer.copies is None


def test_changed_addresses_are_those_of_every_entry(checkpoint, writer):
    writer.change_source_log("orders", lambda address: address.replace("/in/", "/moved/"))
    assert set(file_source_paths(checkpoint, "orders")) == {f"file:///moved/{n}.json" for n in range(4)}
    assert sorted(filter(str.isdigit, writer.copies.names("sources/orders"))) == ["0", "1", "2", "3"]


def test_a_source_of_another_name_takes_its_log_along(checkpoint, writer):
    log = list(file_source_paths(checkpoint, "orders"))
    checkpoint.create("sources/sales/7", b"v1")
    for _ in range(2):  # a command that was killed does it again
        writer.copy_source("orders", "sales")
    assert writer.copies.read("sources/sales/7") == b"v1"
    writer.change_offsets(lambda offsets: {"sales": offsets["orders"]})
    writer.archive_source("orders")
    assert list(file_source_paths(checkpoint, "sales")) == log
    assert not checkpoint.names("sources/orders")
    assert errors(checkpoint) == []


def test_a_copy_up_to_a_batch_can_be_continued_from_there(lake, tmp_path):
    plain = handmade.stateful(tmp_path / "plain", 15)
    handmade.entry(plain, 9, compact=True)
    for number in range(9):  # Spark removes them in time
        handmade.remove(plain / "sources" / "0" / str(number))
    first, copy = lake.below("1"), lake.below("2")
    CheckpointWriter(first).copy_named(plain, {"0": "orders"})
    assert (batches_to_copy(first), keeps_paths(first)) == ([*range(15)], False)
    for batch, logs in ((12, {"9.compact", "10", "11", "12"}), (4, {"0", "1", "2", "3", "4"})):
        CheckpointWriter(copy).copy_until(first, batch, OTHER_ID, {"orders": batch})
        assert errors(copy) == []
        assert (read_tail(copy).query_id, read_tail(copy).latest_commit.batch_id) == (OTHER_ID, batch)
        assert set(copy.names("sources/orders")) == logs
        assert [int(path[11:-5]) for path in file_source_paths(copy, "orders")] == list(range(batch + 1))
    assert errors(first) == []


def test_a_new_checkpoint_continues_after_a_first_batch_that_counts_as_done(checkpoint, lake):
    writer = CheckpointWriter(lake.below("2"))
    writer.begin(OTHER_ID)
    writer.write_initial_offsets("clicks", '{"clicks":{"0":5}}')
    writer.write_first_batch(checkpoint, 3, {"clicks": '{"clicks":{"0":7}}'}, is_committed=True)
    tail = read_tail(lake.below("2"))
    assert (tail.query_id, tail.next_start.kind, tail.next_start.batch_id) == (OTHER_ID, "continue", 1)
    assert tail.committed_offsets.watermark_ms == 0
    assert tail.committed_offsets.conf.items() >= handmade.CONF.items()
    assert lake.read("2/sources/clicks/0") == b'\0v1\n{"clicks":{"0":5}}'


def test_what_is_begun_stays_as_it_is(checkpoint, lake):
    for query_id, offset in ((OTHER_ID, "1"), (handmade.QUERY_ID, "2")):
        writer = CheckpointWriter(lake.below("2"))
        writer.begin(query_id)
        writer.write_first_batch(checkpoint, 3, {"orders": f'{{"logOffset":{offset}}}'})
    assert json.loads(lake.read("2/metadata")) == {"id": OTHER_ID}
    assert read_offset(lake.below("2"), 0).offsets == {"orders": '{"logOffset":1}'}


def test_a_new_checkpoint_of_a_lake_in_memory_is_inspected():
    lake = MemoryStore()
    writer = CheckpointWriter(lake.below("1"))
    lake.create(
        "like/offsets/0", b'v2\n{"batchWatermarkMs":5,"batchTimestampMs":1,"conf":{}}\n{"logOffset":0}'
    )
    writer.begin(OTHER_ID)
    writer.write_first_batch(lake.below("like"), 0, {"orders": '{"logOffset":4}'})
    inspection = inspect(lake.below("1"))
    assert (inspection.query_id, inspection.next_start.kind) == (OTHER_ID, "repeat_batch")
    assert [source.raw for source in inspection.sources] == ['{"logOffset":4}']


def test_a_checkpoint_of_a_file_system_is_copied_into_memory(tmp_path):
    CheckpointWriter(memory := MemoryStore()).copy_named(handmade.stateful(tmp_path), {"0": "orders"})
    assert errors(memory) == []
    assert read_tail(memory).query_id == handmade.QUERY_ID

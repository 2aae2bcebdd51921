"""The writer of a checkpoint's files, on checkpoints written by hand; what Spark does with them is in tests/run."""

import json

import pytest

from tests.checkpoint import handmade
from tidemill.checkpoint import file_source_paths, read_offset, read_tail
from tidemill.checkpoint.verify import verify
from tidemill.checkpoint.write import CheckpointWriter
from tidemill.connectors.registry import recognize

OTHER_ID = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def checkpoint(tmp_path):
    """Four committed batches of a file source that is called `orders`."""
    plain = handmade.stateful(tmp_path / "plain")
    CheckpointWriter(tmp_path / "1").copy_named(plain, {"0": "orders"})
    return tmp_path / "1"


@pytest.fixture
def writer(checkpoint, tmp_path):
    return CheckpointWriter(checkpoint, tmp_path / "control", "test")


def errors(checkpoint):
    return [
        finding
        for finding in verify(checkpoint, level="full", recognize=recognize).findings
        if finding.severity == "error"
    ]


def test_a_copy_of_plain_sparks_checkpoint_has_names_for_its_sources(checkpoint):
    assert errors(checkpoint) == []
    assert read_tail(checkpoint).query_id == handmade.QUERY_ID
    assert read_offset(checkpoint, 3).offsets == {"orders": '{"logOffset": 3}'}
    assert len(list(file_source_paths(checkpoint, "orders"))) == 4


def test_a_copy_begins_again_where_one_was_killed(checkpoint, tmp_path):
    (checkpoint / "offsets" / "9").write_text("left behind")
    CheckpointWriter(checkpoint).copy_named(tmp_path / "plain", {"0": "orders"})
    assert errors(checkpoint) == []


def test_a_scheduled_batch_repeats_the_offsets_under_the_watermark_of_the_last_commit(
    checkpoint, writer, tmp_path
):
    assert writer.schedule_batch(read_tail(checkpoint)) == 4
    entry = read_offset(checkpoint, 4)
    assert (entry.offsets, entry.watermark_ms) == ({"orders": '{"logOffset": 3}'}, 30)
    [copy] = (tmp_path / "control" / "repairs").iterdir()
    assert copy.read_bytes() == (checkpoint / "offsets" / "4").read_bytes()


def test_a_batch_that_is_planned_is_not_planned_again(checkpoint, writer):
    tail = read_tail(checkpoint)
    writer.schedule_batch(tail, {"orders": '{"logOffset":3}'})
    planned = (checkpoint / "offsets" / "4").read_bytes()
    with pytest.raises(FileExistsError):
        writer.schedule_batch(tail, watermark_ms=99)
    assert (checkpoint / "offsets" / "4").read_bytes() == planned


def test_changed_offsets_leave_a_copy_of_what_they_replace(checkpoint, writer):
    handmade.offsets(checkpoint, 3, 'orders:{"logOffset":3}', named=True)  # with its checksums
    replaced = (checkpoint / "offsets" / "3").read_bytes()
    writer.change_offsets(lambda offsets: {**offsets, "orders": None})
    assert [read_offset(checkpoint, batch).offsets["orders"] for batch in (1, 2, 3)] == [
        '{"logOffset": 1}',
        None,
        None,
    ]
    assert (writer.copies / "offsets" / "3").read_bytes() == replaced
    assert not handmade.sidecar(checkpoint / "offsets" / "3").exists()
    assert handmade.sidecar(writer.copies / "offsets" / "3").exists()


def test_an_edit_that_changes_nothing_leaves_no_copy(writer):
    writer.change_offsets(lambda offsets: offsets)
    writer.change_source_log("orders", lambda address: address)
    assert writer.copies is None


def test_changed_addresses_are_those_of_every_entry(checkpoint, writer):
    writer.change_source_log("orders", lambda address: address.replace("/in/", "/moved/"))
    assert set(file_source_paths(checkpoint, "orders")) == {f"file:///moved/{n}.json" for n in range(4)}
    assert (
        len([path for path in (writer.copies / "sources" / "orders").iterdir() if path.name.isdigit()]) == 4
    )


def test_a_source_of_another_name_takes_its_log_along(checkpoint, writer):
    log = list(file_source_paths(checkpoint, "orders"))
    handmade.entry(checkpoint, 7, key="sales")
    for _ in range(2):  # a command that was killed does it again
        writer.copy_source("orders", "sales")
    assert [path.name for path in (writer.copies / "sources" / "sales").iterdir() if path.name == "7"] == [
        "7"
    ]
    writer.change_offsets(lambda offsets: {"sales": offsets["orders"]})
    writer.archive_source("orders")
    assert list(file_source_paths(checkpoint, "sales")) == log
    assert not (checkpoint / "sources" / "orders").exists()
    assert errors(checkpoint) == []


def test_a_copy_up_to_a_batch_can_be_continued_from_there(tmp_path):
    plain = handmade.stateful(tmp_path / "plain", 15)
    handmade.entry(plain, 9, compact=True)
    for number in range(9):  # Spark removes them in time
        handmade.remove(plain / "sources" / "0" / str(number))
    CheckpointWriter(tmp_path / "1").copy_named(plain, {"0": "orders"})
    for batch, logs in ((12, {"9.compact", "10", "11", "12"}), (4, {"0", "1", "2", "3", "4"})):
        copy = tmp_path / "2"
        CheckpointWriter(copy).copy_until(tmp_path / "1", batch, OTHER_ID, {"orders": batch})
        assert errors(copy) == []
        assert (read_tail(copy).query_id, read_tail(copy).latest_commit.batch_id) == (OTHER_ID, batch)
        assert {path.name for path in (copy / "sources" / "orders").iterdir()} == logs
        assert [int(path[11:-5]) for path in file_source_paths(copy, "orders")] == list(range(batch + 1))
    assert errors(tmp_path / "1") == []


def test_a_new_checkpoint_continues_after_a_first_batch_that_counts_as_done(checkpoint, tmp_path):
    writer = CheckpointWriter(tmp_path / "2")
    writer.begin(OTHER_ID)
    writer.write_initial_offsets("clicks", '{"clicks":{"0":5}}')
    writer.write_first_batch(checkpoint, 3, {"clicks": '{"clicks":{"0":7}}'}, is_committed=True)
    tail = read_tail(tmp_path / "2")
    assert (tail.query_id, tail.next_start.kind, tail.next_start.batch_id) == (OTHER_ID, "continue", 1)
    assert tail.committed_offsets.watermark_ms == 0
    assert tail.committed_offsets.conf.items() >= handmade.CONF.items()
    assert (tmp_path / "2" / "sources" / "clicks" / "0").read_bytes() == b'\0v1\n{"clicks":{"0":5}}'


def test_what_is_begun_stays_as_it_is(checkpoint, tmp_path):
    for query_id, offset in ((OTHER_ID, "1"), (handmade.QUERY_ID, "2")):
        writer = CheckpointWriter(tmp_path / "2")
        writer.begin(query_id)
        writer.write_first_batch(checkpoint, 3, {"orders": f'{{"logOffset":{offset}}}'})
    assert json.loads((tmp_path / "2" / "metadata").read_text()) == {"id": OTHER_ID}
    assert read_offset(tmp_path / "2", 0).offsets == {"orders": '{"logOffset":1}'}

"""The logs of a checkpoint, and what the next start does."""

import json
from pathlib import Path

import pytest

from tests.checkpoint import handmade
from tests.checkpoint.recognized import inspect
from tests.support.raising import raises
from tidemill.checkpoint import (
    CheckpointFormatError,
    FileAbsentError,
    NextStart,
    file_source_paths,
    history,
    offset_batches,
    read_commit,
    read_offset,
    read_tail,
    read_tail_or_empty,
)
from tidemill.connectors.delta.position import DeltaPosition
from tidemill.connectors.files.position import FilePosition
from tidemill.connectors.kafka.position import TopicPosition
from tidemill.connectors.rate.position import RowPosition
from tidemill.connectors.registry import recognize


def test_a_new_folder_with_metadata_alone_begins(tmp_path: Path) -> None:
    handmade.write(tmp_path / "metadata", json.dumps({"id": handmade.QUERY_ID}))
    tail = read_tail(tmp_path)
    assert (tail.query_id, tail.latest_offset, tail.next_start) == (
        handmade.QUERY_ID,
        None,
        NextStart("first_run", 0),
    )


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_that_is_not_a_checkpoint_is_refused(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "tables"
    if exists:
        (folder / "_delta_log").mkdir(parents=True)
    with raises("not-a-checkpoint", folder):
        read_tail(folder)


def test_a_committed_batch_continues(tmp_path: Path) -> None:
    tail = read_tail(handmade.stateless(tmp_path))
    assert tail.next_start == NextStart("continue", 4)
    assert tail.committed_offsets == tail.latest_offset
    assert not tail.stateful


def test_an_uncommitted_batch_is_repeated_and_its_start_offset_is_known(tmp_path: Path) -> None:
    handmade.remove(handmade.stateless(tmp_path) / "commits" / "3")
    tail = read_tail(tmp_path)
    assert tail.next_start == NextStart("repeat_batch", 3)
    assert tail.committed_offsets is not None
    assert tail.committed_offsets.batch_id == 2


def test_a_watermark_that_moved_leaves_a_no_data_batch(tmp_path: Path) -> None:
    handmade.stateful(tmp_path)
    assert read_tail(tmp_path).next_start == NextStart("continue", 4)
    handmade.commit(tmp_path, 3, watermark=31)
    assert read_tail(tmp_path).next_start == NextStart("no_data_batch", 4)


def test_a_watermark_that_moved_means_nothing_without_state(tmp_path: Path) -> None:
    handmade.stateless(tmp_path)
    handmade.commit(tmp_path, 3, watermark=31)
    assert read_tail(tmp_path).next_start == NextStart("continue", 4)


def test_a_missing_checkpoint_has_an_empty_tail(tmp_path: Path) -> None:
    tail = read_tail_or_empty(tmp_path / "nowhere")
    assert tail.next_start == NextStart("first_run", 0)
    assert (tail.query_id, tail.next_watermark_ms, tail.stateful) == (None, None, False)
    checkpoint = handmade.stateful(tmp_path / "checkpoint")
    assert read_tail_or_empty(checkpoint) == read_tail(checkpoint)


def test_the_watermark_of_the_next_batch(tmp_path: Path) -> None:
    """It is the last commit's, or that of the repeated batch's own offsets; none before any event."""
    assert read_tail(handmade.stateless(tmp_path / "none")).next_watermark_ms is None
    checkpoint = handmade.stateful(tmp_path / "some")
    for ended, watermark in ((True, 31), (False, 30)):
        handmade.commit(checkpoint, 3, watermark=31)
        if not ended:
            handmade.remove(checkpoint / "commits" / "3")
        assert read_tail(checkpoint).next_watermark_ms == watermark
        assert inspect(checkpoint).watermark_ms == watermark


def test_zero_is_no_watermark_in_an_inspection_and_in_the_history(tmp_path: Path) -> None:
    checkpoint = handmade.stateless(tmp_path, 1)
    assert inspect(checkpoint).watermark_ms is None
    assert history(checkpoint)[0].watermark_ms is None


def test_every_kind_of_offset(tmp_path: Path) -> None:
    delta = {
        "sourceVersion": 1,
        "reservoirId": "t",
        "reservoirVersion": 7,
        "index": -1,
        "isStartingVersion": False,
    }
    rate = {"offset": 10, "timestamp": 1000}
    lines = [
        '{"logOffset":3}',
        '{"topic":{"0":23,"1":5}}',
        json.dumps(delta),
        "12",
        json.dumps(rate),
        "-",
        '{"x":1}',
    ]
    handmade.stateless(tmp_path, 1)
    handmade.offsets(tmp_path, 0, *lines)
    sources = read_offset(tmp_path, 0).sources
    kinds = ["file", "kafka", "delta", "rate", "rate-micro-batch", "unknown", "unknown"]
    assert [recognize(source).kind for source in sources] == kinds
    assert FilePosition.of(sources[0]) == FilePosition(3)
    assert TopicPosition.of(sources[1]) == TopicPosition({"topic": {0: 23, 1: 5}})
    assert DeltaPosition.of(sources[2]) == DeltaPosition("t", 7, -1, is_starting=False)
    assert [RowPosition.of(source).rows for source in sources[3:5]] == [12, 10]
    assert sources[5].raw is None
    assert [source.index for source in sources] == list(range(7))


def test_named_sources_are_split_at_the_first_colon(tmp_path: Path) -> None:
    handmade.stateless(tmp_path, 1)
    handmade.offsets(tmp_path, 0, 'clicks:{"t":{"0":1}}', "views:-", named=True)
    read = read_offset(tmp_path, 0)
    clicks, views = read.source("clicks"), read.source("views")
    assert read.version == 2
    assert clicks is not None
    assert views is not None
    assert TopicPosition.of(clicks) == TopicPosition({"t": {0: 1}})
    assert views.raw is None
    assert read.source("other") is None


def test_fields_that_old_versions_of_spark_left_out_have_a_default(tmp_path: Path) -> None:
    """Spark 2.0 wrote no second line, 2.1 no conf, and commits with only the version."""
    handmade.write(tmp_path / "offsets" / "0", 'v1\n\n{"logOffset":0}')
    handmade.write(
        tmp_path / "offsets" / "1", 'v1\n{"batchWatermarkMs":5,"batchTimestampMs":6}\n{"logOffset":1}'
    )
    handmade.write(tmp_path / "commits" / "0", "v1\n{}")
    handmade.write(tmp_path / "commits" / "1", "v1")
    assert read_offset(tmp_path, 0).conf == {}
    assert read_offset(tmp_path, 1).watermark_ms == 5
    assert read_commit(tmp_path, 0).next_watermark_ms is None
    assert read_commit(tmp_path, 1).next_watermark_ms is None
    tail = read_tail(tmp_path)
    assert (tail.next_start, tail.next_watermark_ms) == (NextStart("continue", 2), 5)


def test_state_ids_of_commits(tmp_path: Path) -> None:
    handmade.commit(tmp_path, 4, ids={"0": [["a", "b"], ["c", "d"]]})
    read = read_commit(tmp_path, 4)
    assert read.version == 2
    assert read.state_unique_ids == {0: (("a", "b"), ("c", "d"))}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "empty-file"),
        ("v1", "truncated-file"),
        ('v1\n{"batchWatermarkMs":', "unparseable-file"),
        ("v3\n{}", "unknown-version"),
        ("v0\n{}", "unparseable-file"),
        ("{}\n{}", "unparseable-file"),
        ('v1\n{"batchWatermarkMs":"x"}', "unparseable-file"),
        ('v1\n{"conf":{"a":1}}', "unparseable-file"),
        ("v1\n{}\n" + "[" * 100_000, "unparseable-file"),
        ("v1\n{}\nNaN", "unparseable-file"),
        ("v1\n{}\n" + "9" * 5000, "unparseable-file"),
        ("v2\n{}\nno colon", "unparseable-file"),
    ],
)
def test_damaged_offsets_have_a_code(tmp_path: Path, content: str, code: str) -> None:
    handmade.write(tmp_path / "offsets" / "0", content)
    with pytest.raises(CheckpointFormatError) as caught:
        read_offset(tmp_path, 0)
    assert (caught.value.code, caught.value.where) == (code, "offsets/0")


def test_an_unknown_version_is_refused_by_number(tmp_path: Path) -> None:
    handmade.write(tmp_path / "commits" / "0", "v3\n{}")
    with raises("unknown-version", "version 3", "versions 1 to 2"):
        read_commit(tmp_path, 0)


def test_a_missing_batch(tmp_path: Path) -> None:
    with pytest.raises(FileAbsentError):
        read_offset(handmade.stateless(tmp_path), 9)


def test_temporary_files_and_checksums_are_not_batches(tmp_path: Path) -> None:
    handmade.stateless(tmp_path, 2)
    for name in (".9.1b3e.tmp", "9.tmp", "007", "+9", "-1", "٣"):
        (tmp_path / "offsets" / name).write_text("v1")
    assert offset_batches(tmp_path) == [0, 1]


def test_a_compacted_source_log_yields_each_file_once(tmp_path: Path) -> None:
    handmade.stateless(tmp_path, 9)
    handmade.entry(tmp_path, 9, compact=True)
    handmade.entry(tmp_path, 10)
    assert list(file_source_paths(tmp_path, "0")) == [f"file:///in/{number}.json" for number in range(11)]


def test_history_has_ranges_and_continues_after_a_damaged_file(tmp_path: Path) -> None:
    handmade.remove(handmade.stateless(tmp_path) / "commits" / "3")
    (tmp_path / "offsets" / "1").write_text("")
    batches = history(tmp_path)
    assert [batch.committed for batch in batches] == [True, True, True, False]
    assert batches[1].problem is not None
    assert batches[2].sources[0].start is None
    last = batches[3].sources[0]
    assert last.start is not None
    assert (FilePosition.of(last.start), FilePosition.of(last.end)) == (FilePosition(2), FilePosition(3))
    assert [batch.batch_id for batch in history(tmp_path, last=1)] == [3]
    assert history(tmp_path, last=1)[0].sources[0].start is not None

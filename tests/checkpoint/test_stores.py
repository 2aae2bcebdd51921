"""A checkpoint is read alike wherever its store has the files."""

import zipfile
from dataclasses import replace

import pytest

from tests.checkpoint import handmade
from tests.checkpoint.copied import in_memory
from tests.checkpoint.recognized import inspect, verify
from tidemill.checkpoint import (
    changes_to_apply,
    file_source_paths,
    has_checkpoint,
    history,
    read_tail,
    read_tail_or_empty,
)
from tidemill.checkpoint.format.folder import Folder
from tidemill.storage.memory_store import MemoryStore


@pytest.fixture
def checkpoint(tmp_path):
    handmade.stateful(tmp_path / "1")
    handmade.operator(tmp_path / "1")
    return tmp_path / "1"


@pytest.fixture
def snapshots(checkpoint):
    """Its state as the RocksDB provider writes it."""
    for partition in ("0", "1"):
        store = checkpoint / "state" / "0" / partition
        for file in store.glob("*.delta"):
            handmade.remove(file)
        handmade.write(store / "SSTs" / "a.sst", b"rows")
        with zipfile.ZipFile(store / "4.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("metadata", 'v1\n{"sstFiles":[{"dfsSstFileName":"a.sst","sizeBytes":4}]}')
    return checkpoint


def test_a_store_in_memory_is_inspected_like_a_folder(checkpoint):
    memory = in_memory(checkpoint)
    assert replace(inspect(memory), path="") == replace(inspect(checkpoint), path="")
    assert inspect(memory).path == memory.uri()
    assert inspect(memory).operators[0].files == 8
    assert history(memory) == history(checkpoint)
    assert replace(read_tail(memory), path="") == replace(read_tail(checkpoint), path="")
    assert list(file_source_paths(memory, "0")) == [f"file:///in/{n}.json" for n in range(4)]
    assert changes_to_apply(memory) == changes_to_apply(checkpoint) > 0


@pytest.mark.parametrize("level", ["quick", "full"])
@pytest.mark.parametrize("state", ["checkpoint", "snapshots"])
def test_a_store_in_memory_is_verified_like_a_folder(request, state, level):
    folder = request.getfixturevalue(state)
    memory = in_memory(folder)
    assert verify(memory, level=level).sound
    assert verify(memory, level=level).findings == verify(folder, level=level).findings


@pytest.mark.parametrize(
    ("file", "code"),
    [("offsets/3", "missing-file"), ("state/0/1/4.delta", "missing-state"), ("metadata", "missing-metadata")],
)
def test_what_is_missing_in_a_store_in_memory_is_found(checkpoint, file, code):
    memory = in_memory(checkpoint)
    memory.delete([file])
    expected = {(finding.code, finding.where) for finding in verify(memory, level="quick").findings}
    handmade.remove(checkpoint / file)
    assert {(f.code, f.where) for f in verify(checkpoint, level="quick").findings} >= expected
    assert expected
    assert code in {found for found, _ in expected} or file == "offsets/3"


def test_an_empty_store_has_no_checkpoint():
    assert not has_checkpoint(MemoryStore())
    assert read_tail_or_empty(MemoryStore()).next_start.kind == "first_run"


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 19, 20, 35])
def test_the_ends_of_a_file_are_whole_lines_at_any_length(length):
    memory, data = MemoryStore(), bytes(range(length))
    memory.create("log/0", data)
    head, end = Folder.at(memory).ends("log/0", 10)
    assert (head, end) == (data[:10], data[-10:] if length > 10 else b"")


def test_a_file_is_read_in_blocks(monkeypatch):
    monkeypatch.setattr("tidemill.checkpoint.format.folder._BLOCK", 4)
    memory = MemoryStore()
    memory.create("a", b"0123456789")
    memory.create("b", b"01234567")
    assert [list(Folder.at(memory).blocks(name)) for name in ("a", "b")] == [
        [b"0123", b"4567", b"89"],
        [b"0123", b"4567"],
    ]
    with Folder.at(memory).open("a") as file:
        assert (file.read(3), file.seek(-2, 2), file.read(9), file.seek(1), file.read()) == (
            b"012",
            8,
            b"89",
            1,
            b"123456789",
        )

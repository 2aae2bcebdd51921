"""A checkpoint on S3 is opened often and changes little: a file is read once, and again when its content is another."""

from uuid import uuid4

import pytest

from tidemill.checkpoint.format.folder import Folder
from tidemill.storage.object_store import ObjectStore

pytestmark = pytest.mark.slow


@pytest.fixture
def reads(monkeypatch):
    """The files that were read of a store."""
    files = []
    for verb in ("read", "read_range"):
        unchanged = getattr(ObjectStore, verb)

        def noted(store, key, *given, unchanged=unchanged):
            files.append(key)
            return unchanged(store, key, *given)

        monkeypatch.setattr(ObjectStore, verb, noted)
    return files


def test_a_file_is_read_once_and_again_with_another_content(bucket, reads):
    store = bucket.below(f"checkpoint-{uuid4().hex}")
    for number in range(3):
        store.create(f"offsets/{number}", f"of {number}".encode())

    def opened():
        folder = Folder.at(store)
        folder.fetch(f"offsets/{number}" for number in folder.numbers("offsets"))
        return [folder.read(f"offsets/{number}") for number in folder.numbers("offsets")]

    assert opened() == opened() == [b"of 0", b"of 1", b"of 2"]
    assert sorted(reads) == ["offsets/0", "offsets/1", "offsets/2"]
    reads.clear()
    # The same length within the same second, as where a batch is planned again.
    store.replace("offsets/2", b"in 2")
    store.create("offsets/3", b"of 3")
    assert opened() == [b"of 0", b"of 1", b"in 2", b"of 3"]
    assert sorted(reads) == ["offsets/2", "offsets/3"]
    store.delete(["offsets/3"])
    assert opened() == [b"of 0", b"of 1", b"in 2"]


def test_parts_of_a_file_are_those_of_its_content(bucket):
    store = bucket.below(f"checkpoint-{uuid4().hex}")
    store.create("metadata", b"0123456789")
    folder = Folder.at(store)
    assert folder.ends("metadata", 4) == (b"0123", b"6789"), "before there is a listing"
    folder.items("")
    assert folder.ends("metadata", 4) == (b"0123", b"6789")
    assert Folder.at(store).read("metadata") == b"0123456789"

"""What every store keeps: one set of tests over all of them."""

import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tidemill.storage.local_store import LocalStore
from tidemill.storage.memory_store import MemoryStore
from tidemill.storage.object_store import ObjectStore
from tidemill.storage.store import ChangedError, NotAFileError, OutsideError, Store


def test_a_created_file_is_read_back(store: Store) -> None:
    store.create("a/b.json", b"{}")

    assert store.read("a/b.json") == b"{}"


def test_a_missing_file_is_file_not_found(store: Store) -> None:
    with pytest.raises(FileNotFoundError, match=r"a/b\.json"):
        store.read("a/b.json")
    with pytest.raises(FileNotFoundError):
        store.read_range("a/b.json", 0, 1)
    with pytest.raises(FileNotFoundError):
        store.copy("a/b.json", "c")


@pytest.mark.parametrize(
    ("start", "length", "part"),
    [(0, 2, b"01"), (3, 4, b"3456"), (8, 9, b"89"), (20, 1, b""), (-3, 9, b"789"), (-99, 1, b"0")],
)
def test_a_range_ends_where_the_file_ends(store: Store, start: int, length: int, part: bytes) -> None:
    store.create("digits", b"0123456789")

    assert store.read_range("digits", start, length) == part


def test_create_refuses_a_taken_name_and_keeps_its_file(store: Store) -> None:
    store.create("a", b"first")

    with pytest.raises(FileExistsError):
        store.create("a", b"second")
    assert store.read("a") == b"first"


def test_one_of_many_creators_wins(store: Store) -> None:
    def create(worker: int) -> bool:
        try:
            store.create("lease/1.json", str(worker).encode() * 10_000)
        except FileExistsError:
            return False
        return True

    won = at_once(create)

    assert won.count(True) == 1
    assert store.read("lease/1.json") == str(won.index(True)).encode() * 10_000
    assert store.names("lease") == ["1.json"]


def test_replace_creates_and_replaces(store: Store) -> None:
    store.replace("a/b", b"first")
    store.replace("a/b", b"2")

    assert store.read("a/b") == b"2"


def test_replace_of_an_unchanged_version(store: Store) -> None:
    created = store.create("a", b"first")

    replaced = store.replace("a", b"second", unchanged=created)
    store.replace("a", b"third", unchanged=replaced)

    assert store.read("a") == b"third"


@pytest.mark.parametrize("change", [lambda s: s.replace("a", b"other"), lambda s: s.delete(["a"])])
def test_replace_refuses_a_version_that_is_no_more(store: Store, change: Callable[[Store], object]) -> None:
    version = store.create("a", b"first")
    change(store)
    before = [store.read(name) for name in sorted(store.names())]

    with pytest.raises(ChangedError, match="replaced or removed"):
        store.replace("a", b"second", unchanged=version)

    assert [store.read(name) for name in sorted(store.names())] == before


def test_one_of_many_conditional_replacers_wins(store: Store) -> None:
    version = store.create("a", b"first")

    def replace(worker: int) -> bool:
        try:
            store.replace("a", str(worker).encode(), unchanged=version)
        except ChangedError:
            return False
        return True

    won = at_once(replace)

    assert won.count(True) == 1
    assert store.read("a") == str(won.index(True)).encode()


def test_a_reader_sees_the_old_content_or_the_new(store: Store) -> None:
    contents = {letter * 100_000 for letter in (b"a", b"b")}
    store.replace("a", b"a" * 100_000)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for content in contents:
                store.replace("a", content)

    writer = threading.Thread(target=write)
    writer.start()
    read = {store.read("a") for _ in range(300)}
    stop.set()
    writer.join()

    assert read <= contents


def test_a_listing_of_one_level_is_sorted_and_has_folders(store: Store) -> None:
    for key in ("log/2.json", "log/10.json", "log/sub/x", "log-old/1.json", "top"):
        store.create(key, b"12")

    assert [(entry.key, entry.size, entry.is_folder) for entry in store.list("log")] == [
        ("log/10.json", 2, False),
        ("log/2.json", 2, False),
        ("log/sub", 0, True),
    ]
    assert sorted(store.names()) == ["log", "log-old", "top"]
    assert [entry.name for entry in store.list("log", after="10.json")] == ["2.json", "sub"]
    assert store.names("log", after="2.json") == ["sub"]


def test_a_walk_has_the_files_of_all_levels(store: Store) -> None:
    for key in ("a/b/c", "a/b-c", "a/z", "b"):
        store.create(key, b"")

    assert [entry.key for entry in store.walk("a")] == ["a/b-c", "a/b/c", "a/z"]
    assert [entry.key for entry in store.walk()] == ["a/b-c", "a/b/c", "a/z", "b"]


@pytest.mark.parametrize("prefix", ["missing", "file"])
def test_a_folder_without_files_lists_nothing(store: Store, prefix: str) -> None:
    store.create("file", b"")

    assert (list(store.list(prefix)), list(store.names(prefix)), list(store.walk(prefix))) == ([], [], [])


def test_a_listing_has_the_time_of_the_last_write(store: Store) -> None:
    store.create("a", b"")
    (first,) = store.list()
    store.replace("a", b"1")
    (second,) = store.list()

    assert 0 < first.modified <= second.modified


def test_deleted_files_leave_no_folders(store: Store) -> None:
    for key in ("a/b/c", "a/b/d", "x"):
        store.create(key, b"")

    store.delete(["a/b/c", "missing/file"])
    assert store.names("a") == ["b"]
    store.delete(entry.key for entry in store.walk("a"))

    assert store.names() == ["x"]


def test_a_deleted_folder_is_gone_with_its_empty_folders(store: Store) -> None:
    for key in ("t/_delta_log/0.json", "t/part.parquet", "u/part.parquet"):
        store.create(key, b"x")
    if isinstance(store, LocalStore):  # as Delta leaves one behind
        Path(store.uri("t"), "_delta_log", "_commits").mkdir()
    store.delete_folder("t")
    store.delete_folder("missing")
    assert [entry.key for entry in store.list()] == ["u"]
    assert [entry.key for entry in store.walk("")] == ["u/part.parquet"]


def test_the_folder_above_a_deleted_one_stays_for_those_who_write_there(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("tables/shop/orders/_delta_log/0.json", b"x")
    store.delete_folder("tables/shop/orders")
    # As Spark does for a table of another stream: it has looked for the folder above, and creates the one below.
    (tmp_path / "tables/shop/returns").mkdir()


def test_files_are_created_while_others_delete_their_folder(store: Store) -> None:
    def create_and_delete(worker: int) -> bool:
        for step in range(20):
            store.create(f"a/b/{worker}-{step}", b"")
            store.delete([f"a/b/{worker}-{step}"])
        return True

    assert all(at_once(create_and_delete, workers=3))
    assert store.names() == []


def test_a_copy_has_the_content_of_its_moment(store: Store) -> None:
    store.create("a", b"first")
    store.create("b/c", b"other")

    store.copy("a", "b/c")
    store.copy("a", "b/c")
    store.replace("a", b"second")

    assert store.read("b/c") == b"first"
    assert store.names("b") == ["c"]


def test_a_copy_into_another_store(store: Store, tmp_path: Path) -> None:
    store.create("a/b", b"first")

    for into in (LocalStore(tmp_path / "other"), MemoryStore(), store.below("other")):
        store.copy("a/b", "c/d", into)
        assert into.read("c/d") == b"first"
    assert store.read("other/c/d") == b"first"


def test_a_pickled_store_is_the_same_store(store: Store) -> None:
    store.create("a", b"1")

    assert pickle.loads(pickle.dumps(store)).read("a") == b"1"  # noqa: S301


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/./b", "a\0b"])
def test_what_is_no_key_is_refused(store: Store, key: str) -> None:
    for use in (
        store.read,
        lambda k: store.create(k, b""),
        lambda k: store.replace(k, b""),
        lambda k: store.delete([k]),
        lambda k: store.copy(k, "to"),
    ):
        with pytest.raises(ValueError, match="is not a key"):
            use(key)


def test_a_confined_store_has_the_same_files(store: Store) -> None:
    store.create("a/b", b"1")

    confined = store.confined()

    assert (confined.read("a/b"), confined.read_range("a/b", 0, 1)) == (b"1", b"1")
    assert (confined.walk(), confined.list("a")) == (store.walk(), store.list("a"))
    assert confined.below("a").read("b") == b"1"


def test_a_confined_store_follows_no_link_out_of_its_root(tmp_path: Path) -> None:
    for name in ("root/inside", "outside"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_bytes(b"1")
        (tmp_path / "root" / name.replace("/", "-")).symlink_to(tmp_path / name)
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside" / "file")
    os.mkfifo(tmp_path / "root" / "pipe")
    plain, store = LocalStore(tmp_path / "root"), LocalStore(tmp_path / "root").confined()

    assert plain.read("outside/file") == plain.read("link") == b"1"
    for use in (
        lambda: store.read("link"),
        lambda: store.read_range("outside/file", 0, 1),
        lambda: store.list("outside"),
        lambda: store.names("outside"),
        lambda: store.below("outside"),
    ):
        with pytest.raises(OutsideError):
            use()
    with pytest.raises(NotAFileError):
        store.read("pipe")
    assert store.read("root-inside/file") == b"1"
    assert {entry.name: entry.kind for entry in store.list()} == {
        "inside": "folder",
        "link": "outside",
        "outside": "outside",
        "pipe": "other",
        "root-inside": "other",
    }


def test_addresses_are_below_the_address_of_the_root(store: Store) -> None:
    assert store.uri("a/b") == f"{store.uri()}/a/b"


def test_local_files_are_as_readable_as_the_umask_says(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        LocalStore(tmp_path).create("created", b"")
        LocalStore(tmp_path).replace("replaced", b"")
    finally:
        os.umask(umask)

    assert {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == {
        "created": "0o640",
        "replaced": "0o640",
    }


def test_writes_do_not_touch_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "umask", lambda _mask: pytest.fail("other threads create files meanwhile"))

    LocalStore(tmp_path).replace("a", b"")


def test_what_a_kill_left_unfinished_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / ".a.json.0123abcd.unfinished").write_bytes(b"{")

    assert list(LocalStore(tmp_path).walk()) == []


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    store = LocalStore(tmp_path)

    store.create("a", b"1")
    store.copy("a", "b")

    with pytest.raises(FileExistsError):
        store.create("a", b"2")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a", "b"]
    assert store.read("b") == b"1"


def at_once(work: Callable[[int], bool], workers: int = 8) -> list[bool]:
    """Run a function in several threads that begin together, and return what it returned in each."""
    barrier = threading.Barrier(workers)

    def begin(worker: int) -> bool:
        barrier.wait()
        return work(worker)

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(begin, range(workers)))


@pytest.mark.slow
def test_a_folder_that_hadoop_marks_is_no_file(bucket: ObjectStore) -> None:
    """Hadoop marks a folder by an empty object whose name ends with a slash."""
    store = bucket.below("marked")
    store.create("offsets/0", b"1")
    for name in ("marked/", "marked/offsets/", "marked/state/"):
        request = Request(f"{bucket.settings.endpoint}/{bucket.bucket}/{name}", data=b"", method="PUT")  # noqa: S310
        urlopen(request).close()  # noqa: S310 - on loopback

    assert [(entry.key, entry.is_folder) for entry in store.list()] == [("offsets", True), ("state", True)]
    assert store.names("offsets") == ["0"]
    assert [entry.key for entry in store.walk()] == ["offsets/0"]
    store.create("state/empty", b"")
    assert [entry.key for entry in store.walk()] == ["offsets/0", "state/empty"]
    assert [entry.name for entry in store.list("", after="a")] == ["offsets", "state"]
    store.delete_folder("state")
    assert store.names() == ["offsets"]

"""Files on S3 as a source: the same files wait as in a folder (`test_backlog_against_spark.py` has Spark's listing).

Long listings are kept, and newer names are listed by themselves.
"""

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.support.raising import raises
from tidemill.checkpoint import SourceOffset
from tidemill.connectors.files import recent
from tidemill.connectors.files.addresses import file_address, plain_path
from tidemill.connectors.files.backlog import Relocation, waiting_files
from tidemill.connectors.files.listing import listed_files, missing_paths
from tidemill.storage.lake import Lake
from tidemill.storage.local_store import LocalStore
from tidemill.storage.object_store import ObjectStore

TREE = (
    "a.json",
    "b c.json",
    "é:1.json",
    "empty.json",
    "_hidden.json",
    ".hidden.json",
    "e._COPYING_",
    "_day=1/kept.json",
    "below/c.json",
    "below/deeper/d.csv",
    "_below/e.json",
    "2026/11/26/f.json",
)
PARTITIONS = ("day=1/a.json", "day=1/hour=2/b.json", "other/c.json", "d.json")


@pytest.fixture
def folders(bucket: ObjectStore, tmp_path) -> Iterator[tuple[LocalStore, ObjectStore]]:
    """A folder, and a prefix of a bucket."""
    return LocalStore(tmp_path / "in"), bucket.below(f"in-{uuid4().hex}")


def fill(folders, names) -> None:
    for store in folders:
        for name in names:
            store.replace(name, b"" if name.startswith("empty") else b"x\n")


def listing(store, lake, path="", **options) -> list[str]:
    """The files of a store, as keys below it."""
    root = str(store)
    present = listed_files(f"{root}{path}", options, lake).paths
    assert all(file.startswith(f"{root}/") for file in present)
    return sorted(file.removeprefix(f"{root}/") for file in present)


@pytest.mark.parametrize("tree", [TREE, PARTITIONS], ids=["folders", "partitions"])
@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("", {}),
        ("", {"recursiveFileLookup": "true"}),
        ("", {"pathGlobFilter": "*.{json,txt}", "recursiveFileLookup": "true"}),
        ("/*", {}),
        ("/{below,2026}", {"recursiveFileLookup": "TRUE"}),
        ("/*/*", {}),
        ("/day=[12]", {}),
        ("/nothing*", {}),
        ("/a.json", {}),
        ("/day=1/", {}),
    ],
)
def test_the_files_are_those_of_a_folder(folders, bucket, tree, path, options):
    fill(folders, tree)
    folder, store = folders
    lake = Lake(bucket, access=bucket.settings)
    try:
        expected = listing(folder, lake, path, **options)
    except FileNotFoundError:
        expected = []  # a store has no empty folders, so one without files is not missing

    assert listing(store, lake, path, **options) == expected


def test_the_files_of_a_sink_are_those_of_its_log(folders, bucket):
    fill(folders, ["a.json", "left.json"])
    _, store = folders
    line = {"path": f"{store}/a.json", "size": 2, "isDir": False, "modificationTime": 1, "action": "add"}
    store.create("_spark_metadata/0", f"v1\n{json.dumps(line)}".encode())
    lake = Lake(bucket, access=bucket.settings)

    assert listing(store, lake) == ["a.json"]
    assert listing(store, lake, "/*.json") == ["a.json", "left.json"]


def test_missing_files_are_asked_for_or_listed(folders, bucket, monkeypatch):
    _, store = folders
    fill(folders, ["a b", "c/d"])
    lake = Lake(bucket, access=bucket.settings)
    paths = [f"{store}/{name}" for name in ("a b", "x", "c/d", "c/y", "z/é")]
    missing = [f"{store}/{name}" for name in ("x", "c/y", "z/é")]

    assert missing_paths(paths, lake) == missing
    monkeypatch.setattr("tidemill.connectors.files.listing._FEW", 0)
    assert missing_paths(paths, lake) == missing


def test_addresses_are_escaped_as_spark_escapes_them():
    address = file_address("s3a://bucket/in/a b%é.json")

    assert address == "s3a://bucket/in/a%20b%25é.json"
    assert plain_path(address) == "s3a://bucket/in/a b%é.json"


def test_a_folder_that_moves_to_s3_keeps_the_names_of_its_files():
    moved = Relocation("/landing/in", "s3a://bucket/in")

    assert moved.address("file:///landing/in/day=1/a%20b.json") == "s3a://bucket/in/day=1/a%20b.json"
    assert moved.address("file:///landing/elsewhere/a.json") == "file:///landing/elsewhere/a.json"
    back = Relocation("s3a://bucket/in", "/landing/in")
    assert back.address("s3a://bucket/in/day=1/a%20b.json") == "file:///landing/in/day=1/a%20b.json"


class Reader:
    """A reader of a prefix, by its checkpoint.

    Attributes:
        store: The prefix.
        checkpoint: Its checkpoint.
        listed: After which addresses the store was listed.
    """

    def __init__(self, store: ObjectStore, tmp_path, monkeypatch) -> None:
        self.store, self.checkpoint = store, tmp_path / "ck"
        self.listed: list[str] = []
        self._entries = 0
        walk = ObjectStore.walk

        def noted(of, prefix="", *, after=""):
            self.listed.append(after)
            return walk(of, prefix, after=after)

        monkeypatch.setattr(ObjectStore, "walk", noted)

    def reads(self, *names: str, folder: str = "") -> None:
        log = self.checkpoint / "sources" / "events"
        log.mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps(
                {
                    "path": file_address(f"{folder or self.store}/{name}"),
                    "timestamp": 1,
                    "batchId": self._entries,
                }
            )
            for name in names
        ]
        (log / str(self._entries)).write_text("\n".join(["v1", *lines]))
        self._entries += 1

    def waiting(self, **how):
        self.listed.clear()
        offset = None
        if self._entries:
            offset = SourceOffset.parse("", "events", None, f'{{"logOffset":{self._entries - 1}}}')
        return waiting_files(
            str(self.store),
            offset,
            lake=Lake(self.store, access=self.store.settings),
            checkpoint=self.checkpoint,
            name="events",
            what="feed events",
            **how,
        )


@pytest.fixture
def reader(folders, tmp_path, monkeypatch) -> Reader:
    return Reader(folders[1], tmp_path, monkeypatch)


def put(reader, *names) -> None:
    for name in names:
        reader.store.replace(name, b"12345")


def test_what_waits_has_bytes_and_times_by_the_listing_alone(reader):
    put(reader, "1", "2", "3")
    reader.reads("2")

    backlog = reader.waiting()
    amount = backlog.unread.amount(backlog.count, times=True)

    assert (backlog.count, backlog.detail, backlog.head) == (2, "1", "3 files, last 3")
    assert (amount.files, amount.bytes) == (2, 10)
    assert amount.oldest_at is not None
    assert reader.listed == [""]


def test_a_folder_without_files_waits_for_the_first(reader):
    assert (reader.waiting().count, reader.waiting().head) == (0, "0 files")


def test_files_that_are_declared_as_ordered_are_listed_after_the_last_one_that_was_read(reader):
    put(reader, "1", "2", "3")
    reader.reads("1")
    reader.reads("2")

    assert reader.waiting(is_ordered=True).count == 1
    assert reader.listed == ["2"]
    reader.reads("3")
    idle = reader.waiting(is_ordered=True)
    assert (idle.count, idle.head) == (0, "the newest files, last 3")
    put(reader, "0", "4")
    assert reader.waiting(is_ordered=True).count == 1, "what comes before is not seen, as declared"
    assert reader.waiting().count == 2


def test_what_was_read_elsewhere_says_nothing_about_the_names_of_a_folder(reader):
    put(reader, "1", "2")
    reader.reads("9", folder="s3a://zoo/elsewhere")

    assert reader.waiting(is_ordered=True).count == 2
    assert reader.listed == [""]


@pytest.fixture
def clock(monkeypatch):
    """The time of `recent`, which each listing of everything advances by two seconds."""
    now = [0.0]
    monkeypatch.setattr(recent, "monotonic", lambda: now[0])
    listed = recent.present_files

    def slow(*args, after="", **how):
        now[0] += 0.0 if after else 2.0
        return listed(*args, after=after, **how)

    monkeypatch.setattr(recent, "present_files", slow)
    return now


def test_a_long_listing_is_kept_for_ten_times_as_long(reader, clock):
    put(reader, "5", "6")
    reader.reads("5")
    assert (reader.waiting().count, reader.listed) == (1, [""])
    put(reader, "1")
    clock[0] += 19

    assert (reader.waiting().count, reader.listed) == (1, [])
    reader.reads("6")
    assert (reader.waiting().count, reader.listed) == (0, []), "what was read meanwhile does not wait"
    clock[0] += 2
    assert (reader.waiting().count, reader.listed) == (1, [""])


def test_newer_names_are_listed_while_a_listing_is_kept_where_batches_came_in_order(reader, clock):
    put(reader, "1", "2", "3", "4")
    for name in "123":
        reader.reads(name)
    assert (reader.waiting().count, reader.listed) == (1, [""])
    put(reader, "5", "0")

    newer = reader.waiting()

    assert (newer.count, newer.head, reader.listed) == (2, "5 files, last 5", ["4"])
    assert newer.unread.amount(2, times=True).bytes == 10
    clock[0] += 30
    assert (reader.waiting().count, reader.listed) == (3, [""]), "an older name is seen later"


@pytest.mark.usefixtures("clock")
def test_batches_out_of_order_are_no_order(reader):
    put(reader, "1", "2", "3", "4")
    for name in "213":
        reader.reads(name)
    reader.waiting()

    assert (reader.waiting().count, reader.listed) == (1, [])


def test_a_target_without_settings_of_the_store_says_what_to_add(tmp_path):
    with raises("store-not-configured", "s3a://bucket/in", "[targets.<name>.store]"):
        waiting_files(
            "s3://bucket/in", None, lake=Lake.at(tmp_path), checkpoint=None, name="in", what="the folder"
        )

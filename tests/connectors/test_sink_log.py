"""The log of a folder: what is published once, compacted and left out. Without a JVM."""

import json
import time
from dataclasses import dataclass
from datetime import timedelta

import pytest

from tests.support.raising import raises
from tidemill.connectors.files.backlog import waiting_files
from tidemill.connectors.files.listing import present_files
from tidemill.connectors.files.sink_log import FileLog, Written
from tidemill.storage.lake import Lake
from tidemill.storage.local_store import LocalStore
from tidemill.storage.store import Entry

DAY = 86400


def publish(log, batch_id, *names, query_id="query", age=0, retention=None):
    files = [Entry(name, 1, time.time() - age) for name in names or (f"{batch_id}.json",)]
    log.publish(files, Written(query_id, batch_id, "json", ()), retention=retention)


def entries(log):
    return sorted(log.folder.names("_spark_metadata"), key=lambda name: int(name.split(".")[0]))


@pytest.fixture
def log(tmp_path):
    log = FileLog(LocalStore(tmp_path))
    log.begin()
    return log


def published(log):
    return [path.removeprefix(f"{log.folder.uri()}/") for path in sorted(log.paths())]


def test_a_batch_is_published_once_however_often_it_is_repeated(log):
    for batch in (0, 1, 1, 0):
        publish(log, batch)
    assert published(log) == ["0.json", "1.json"]
    assert log.last_batch("query") == 1
    assert log.last_batch("another query") is None


def test_queries_and_streams_share_a_folder(log):
    publish(log, 0, "a.json", query_id="a")
    publish(log, 0, "b.json", query_id="b")
    assert published(log) == ["a.json", "b.json"]
    assert (log.last_batch("a"), log.last_batch("b")) == (0, 0)


def test_each_tenth_entry_repeats_those_before_it_and_old_ones_are_deleted(log):
    for batch in range(32):
        publish(log, batch, f"{batch:02}.json")
    assert published(log) == [f"{batch:02}.json" for batch in range(32)]
    assert entries(log) == [
        *("19.compact", *map(str, range(20, 29))),
        *("29.compact", "30", "31", "32"),
    ]
    assert log.last_batch("query") == 31


def test_files_older_than_the_retention_leave_the_log_with_a_compacted_entry(log):
    publish(log, 0, "old.json", age=DAY, retention=timedelta(hours=1))
    for batch in range(1, 8):
        publish(log, batch, retention=timedelta(hours=1))
    assert "old.json" in published(log)
    publish(log, 8, "late.json", age=DAY, retention=timedelta(hours=1))
    assert published(log) == [*(f"{batch}.json" for batch in range(1, 8)), "late.json"]


@dataclass(frozen=True)
class Interrupted(LocalStore):
    """A folder in which something happens once: after a listing, or before an entry is created."""

    happens: list
    at: str = "create"

    def create(self, key, data):
        if self.at == "create" and self.happens:
            self.happens.pop()()
        return super().create(key, data)

    def names(self, prefix="", *, after=""):
        listed = super().names(prefix, after=after)
        if self.at == "names" and self.happens:
            self.happens.pop()()
        return listed


@pytest.mark.parametrize(("at", "others"), [("names", 1), ("create", 1), ("create", 30)])
def test_writers_of_one_batch_at_the_same_time_publish_it_once(log, at, others):
    """With 30 batches in between, the entry that the slow writer takes has been deleted, and no reader sees it."""

    def fast():
        publish(log, 7, "fast.json")
        for batch in range(1, others):
            publish(log, batch, query_id="another query")

    publish(FileLog(Interrupted(log.folder.root, [fast], at)), 7, "slow.json")
    assert [name for name in published(log) if name in ("fast.json", "slow.json")] == ["fast.json"]


def test_a_batch_whose_entry_no_reader_sees_is_published_by_another(log):
    def others():
        for batch in range(30):
            publish(log, batch, query_id="another query")

    publish(FileLog(Interrupted(log.folder.root, [others])), 7, "slow.json")
    assert published(log).count("slow.json") == 1


def test_an_address_is_escaped_as_spark_does(tmp_path):
    log = FileLog(LocalStore(tmp_path / "a folder"))
    publish(log, 0, "day=10%3A00/é.json")
    assert log.paths() == [f"{tmp_path}/a folder/day=10%3A00/é.json"]
    line = json.loads(log.folder.read("_spark_metadata/0").decode().split("\n")[1])
    assert line["path"] == f"file://{tmp_path}/a%20folder/day=10%253A00/é.json"


@pytest.mark.parametrize("below", ["", "/*.json"], ids=["folder", "pattern"])
def test_a_reader_of_the_folder_waits_for_published_files_only(log, tmp_path, below):
    """A killed run has left a file; Spark reads the log where it reads the folder itself."""
    publish(log, 0)
    (tmp_path / "0.json").touch()
    (tmp_path / "left.json").touch()
    lake = Lake.at(tmp_path)
    backlog = waiting_files(
        f"{tmp_path}{below}", None, lake=lake, checkpoint=None, name="rows", what="the folder"
    )
    assert backlog.count == (2 if below else 1)
    assert present_files(str(tmp_path), {"pathGlobFilter": "*.csv"}, lake, what="the folder").paths == []


@pytest.mark.parametrize("content", [b"v1\n{", b"v1\n{}", b"v1\n1", b"v1\n\xff"])
def test_a_damaged_log_is_an_error_of_its_reader(log, tmp_path, content):
    log.folder.replace("_spark_metadata/0", content)
    with raises("source-not-readable", "the folder", "_spark_metadata"):
        present_files(str(tmp_path), {}, Lake.at(tmp_path), what="the folder")

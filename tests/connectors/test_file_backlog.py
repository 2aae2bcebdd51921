"""What waits in a folder, as Spark's file source would list it.

What Spark lists was measured with pyspark 4.2.0: each name below was in its source log, or was not.
"""

import json
import os
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.raising import raises
from tidemill.checkpoint import CheckpointFormatError, SourceOffset
from tidemill.connectors.files.backlog import waiting_files
from tidemill.connectors.files.listing import missing_paths
from tidemill.storage.lake import Lake

LAKE = Lake.at("/no lake")


def folder(place: Path, *names: str) -> Path:
    for name in names:
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x\n", encoding="utf-8")
    place.mkdir(exist_ok=True)
    return place


def checkpoint(place: Path, *entries: list[str], name: str = "events", time_ms: int = 1) -> Path:
    """A checkpoint whose source log has one entry a list of addresses."""
    log = place / "sources" / name
    log.mkdir(parents=True, exist_ok=True)
    for number, addresses in enumerate(entries):
        lines = [
            json.dumps({"path": address, "timestamp": time_ms, "batchId": number}) for address in addresses
        ]
        (log / str(number)).write_text("\n".join(["v1", *lines]), encoding="utf-8")
    return place


def at(entry: int | None) -> SourceOffset | None:
    return None if entry is None else SourceOffset.parse("", "events", None, f'{{"logOffset":{entry}}}')


def waiting(path: object, entry: int | None = None, taken: Path | None = None, **options: str):
    return waiting_files(
        str(path),
        at(entry),
        lake=LAKE,
        checkpoint=taken,
        name="events",
        what="feed events",
        options=options,
    )


def test_every_file_waits_before_the_first_batch(tmp_path):
    landing = folder(tmp_path / "in", "a.json", "b.json")

    backlog = waiting(landing)

    assert (backlog.count, backlog.unit, bool(backlog), str(backlog)) == (2, "files", True, "2 files")


def test_a_file_that_is_too_old_does_not_wait_and_is_named(tmp_path):
    landing = folder(tmp_path / "in", "old.json", "older.json", "new.json", "read.json")
    taken = checkpoint(tmp_path / "ck", [f"file://{landing}/read.json"], time_ms=1_000_000)
    for name, seconds in (("old.json", 939.9), ("older.json", 100), ("new.json", 940)):
        os.utime(landing / name, (seconds, seconds))

    backlog = waiting(landing, 0, taken, maxFileAge="1m")
    assert (backlog.count, backlog.detail) == (1, "new.json")
    assert f"will never read {landing}/old.json and 1 other file" in backlog.warning
    for options in ({}, {"maxFileAge": "1m", "latestFirst": "true"}):
        assert (
            waiting(landing, 0, taken, **options).count,
            waiting(landing, 0, taken, **options).warning,
        ) == (3, "")
    assert waiting(landing, None, None, maxFileAge="1m").count == 4


def test_only_files_that_the_source_log_lacks_wait(tmp_path):
    landing = folder(tmp_path / "in", "a.json", "b.json", "c.json")
    taken = checkpoint(tmp_path / "ck", [f"file://{landing}/a.json"], [f"file://{landing}/b.json"])

    backlog = waiting(landing, 1, taken)

    assert (backlog.count, backlog.detail, str(backlog)) == (1, "c.json", "1 file")


def test_nothing_waits_when_all_is_taken(tmp_path):
    landing = folder(tmp_path / "in", "a.json")
    taken = checkpoint(tmp_path / "ck", [f"file://{landing}/a.json"])

    assert not waiting(landing, 0, taken)


def test_an_empty_file_waits_and_an_older_file_does_too(tmp_path):
    landing = folder(tmp_path / "in", "new.json")
    (landing / "empty.json").touch()
    taken = checkpoint(tmp_path / "ck", [f"file://{landing}/new.json"])
    os.utime(landing / "empty.json", (1, 1))

    assert waiting(landing, 0, taken).count == 1


def test_what_a_killed_batch_logged_and_did_not_read_waits(tmp_path):
    landing = folder(tmp_path / "in", "a.json", "b.json")
    taken = checkpoint(tmp_path / "ck", [f"file://{landing}/a.json"], [f"file://{landing}/b.json"])

    assert waiting(landing, 0, taken).count == 1
    assert waiting(landing, None, taken).count == 2


def test_a_compacted_log_counts_as_the_whole(tmp_path):
    landing = folder(tmp_path / "in", *(f"{number}.json" for number in range(12)))
    taken = checkpoint(tmp_path / "ck", *([f"file://{landing}/{number}.json"] for number in range(11)))
    log = taken / "sources" / "events"
    lines = [(log / str(number)).read_text().splitlines()[1] for number in range(10)]
    (log / "9.compact").write_text("\n".join(["v1", *lines]), encoding="utf-8")
    for number in range(10):
        (log / str(number)).unlink()

    assert waiting(landing, 10, taken).detail == "11.json"


def test_names_that_spark_leaves_out_do_not_wait(tmp_path):
    data = ["a.json", "_x=1.json", "_metadata", "sp ace.json", "100%.json", "sh#arp", "no_ending"]
    landing = folder(tmp_path / "in", *data, "_b.json", ".c.json", "d._COPYING_", "sub/y.json")

    assert waiting(landing).count == len(data)


def test_addresses_in_the_log_are_escaped_as_uris(tmp_path):
    landing = folder(tmp_path / "di r", "sp ace.json", "100%.json", "ü.json", "a%20b.json", "plus+.json")
    logged = ["sp%20ace.json", "100%25.json", "ü.json", "a%2520b.json", "plus+.json"]
    taken = checkpoint(tmp_path / "ck", [f"file://{tmp_path}/di%20r/{name}" for name in logged])

    assert not waiting(landing, 0, taken)


def test_partition_folders_are_read_and_other_folders_are_not(tmp_path):
    partitioned = folder(tmp_path / "p", "day=1/a", "day=2/b", "day=2/_c", "direct", "_old/day=3/d")
    nested = folder(tmp_path / "n", "top", "sub/a", "sub/deep/b")

    assert waiting(partitioned).count == 3
    assert waiting(nested).count == 1
    assert waiting(nested, recursiveFileLookup="true").count == 3


def test_globs_of_folders_and_of_names(tmp_path):
    folder(tmp_path / "in" / "de", "a.json", "b.csv")
    folder(tmp_path / "in" / "fr", "c.json")
    folder(tmp_path / "in" / "us", "d.json")

    assert waiting(tmp_path / "in" / "*").count == 4
    assert waiting(tmp_path / "in" / "{de,fr}").count == 3
    assert waiting(tmp_path / "in" / "*", pathGlobFilter="*.{json,txt}").count == 3
    assert waiting(tmp_path / "in" / "none*").count == 0


@pytest.mark.parametrize("name", ["a*b", "a?b", "a[b", "a]b", "a{b", "a}b", "a\\b", "day=[1]/a"])
def test_a_name_with_which_spark_would_read_other_files_twice_is_refused(tmp_path, name):
    landing = folder(tmp_path / "in", "a.json", name)

    with raises("name-is-pattern"):
        waiting(landing)

    # Once it is read there is nothing that could be read twice.
    taken = checkpoint(tmp_path / "ck", [f"file://{landing}/{quote(name)}"])
    assert waiting(landing, 0, taken).count == 1


def test_file_name_only_compares_names(tmp_path):
    landing = folder(tmp_path / "in", "a.json")
    taken = checkpoint(tmp_path / "ck", ["file:///elsewhere/a.json"])

    assert waiting(landing, 0, taken).count == 1
    assert not waiting(landing, 0, taken, fileNameOnly="true")


def test_what_only_spark_can_list_waits():
    assert waiting("hdfs://host/in")


def test_a_missing_folder_says_how_to_make_it(tmp_path):
    with raises("folder-missing", "feed events", f"mkdir -p {tmp_path / 'absent'}"):
        waiting(tmp_path / "absent")


def test_a_folder_that_cannot_be_read(tmp_path, monkeypatch):
    landing = folder(tmp_path / "in", "a.json")

    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refused)  # the tests may run as root, who can read everything
    with raises("source-not-readable", landing, "Permission denied"):
        waiting(landing)


def test_a_damaged_source_log_is_an_error_and_not_a_backlog(tmp_path):
    landing = folder(tmp_path / "in", "a.json")
    taken = checkpoint(tmp_path / "ck", [])
    (taken / "sources/events/0").write_text("", encoding="utf-8")

    with pytest.raises(CheckpointFormatError):
        waiting(landing, 0, taken)


def test_missing_files_are_found_with_one_listing_of_each_folder(tmp_path, monkeypatch):
    folder, listed, list_folder = tmp_path / "in", [], os.listdir
    folder.mkdir()
    for name in "abc":
        (folder / name).touch()
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or list_folder(path))
    paths = [f"{folder}/{name}" for name in "abxcy"]
    assert missing_paths([*paths, f"{tmp_path}/no/a", "hdfs://host/a"], LAKE) == [
        f"{folder}/x",
        f"{folder}/y",
        f"{tmp_path}/no/a",
    ]
    assert listed == [str(folder), f"{tmp_path}/no"]

"""What waits in a Delta table, on real tables written by delta-rs."""

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.raising import raises
from tidemill.checkpoint import SourceOffset
from tidemill.connectors.delta.backlog import TableReading, waiting_versions
from tidemill.connectors.delta.first_version import first_version
from tidemill.storage.table_ref import TableRef


def write(folder: Path, *values: int, mode: str = "append") -> None:
    write_deltalake(str(folder), pa.table({"n": pa.array(values, pa.int64())}), mode=mode)


def table(folder: Path, commits: int = 3) -> Path:
    for number in range(commits):
        write(folder, number)
    return folder


def at(folder: Path, version: int, index: int = -1, *, starting: bool = False, table_id: str | None = None):
    """The offset of a stream that reads the table of a folder next at a version."""
    offset = {
        "sourceVersion": 1,
        "reservoirId": table_id or str(DeltaTable(str(folder)).metadata().id),
        "reservoirVersion": version,
        "index": index,
        "isStartingVersion": starting,
    }
    return SourceOffset.parse("", "rows", None, json.dumps(offset))


def waiting(folder: Path, offset=None, **options: str):
    reading = TableReading(options=options)
    return waiting_versions(TableRef.at(folder), offset, what="shop/orders (append)", reading=reading)


def test_no_table_yet_means_nothing_waits(tmp_path):
    assert waiting(tmp_path / "orders").count == 0


def test_every_version_waits_before_the_first_batch(tmp_path):
    assert str(waiting(table(tmp_path / "orders"))) == "3 versions"


def test_versions_from_the_checkpoints_on_wait(tmp_path):
    orders = table(tmp_path / "orders")

    assert waiting(orders, at(orders, 1)).count == 2
    assert waiting(orders, at(orders, 3)).count == 0


def test_the_rest_of_a_version_waits(tmp_path):
    orders = tmp_path / "orders"
    rows = pa.table({"n": pa.array([2, 3], pa.int64()), "p": pa.array(["a", "b"])})
    write_deltalake(str(orders), rows, partition_by=["p"])
    write_deltalake(str(orders), rows, mode="append")

    assert waiting(orders, at(orders, 1, index=0)).count == 1
    assert waiting(orders, at(orders, 1, index=1)).count == 0
    assert waiting(orders, at(orders, 1, starting=True)).count == 1

    DeltaTable(str(orders)).optimize.compact()  # nothing new in version 2, but of version 1 a part is unread
    assert waiting(orders, at(orders, 1, index=0)).detail == "within version 1"


def test_a_compaction_does_not_wait_but_a_deletion_does(tmp_path):
    orders = table(tmp_path / "orders")
    offset = at(orders, 3)

    DeltaTable(str(orders)).optimize.compact()
    assert DeltaTable(str(orders)).version() == 3
    assert not waiting(orders, offset)

    write(orders, 7)
    DeltaTable(str(orders)).delete("n = 7")  # the whole file: nothing is added
    assert waiting(orders, at(orders, 5)).detail == "version 5"


def test_a_commit_without_files_does_not_wait(tmp_path):
    orders = table(tmp_path / "orders")
    commit = {"commitInfo": {"operation": "STREAMING UPDATE"}}
    (orders / "_delta_log" / f"{3:020d}.json").write_text(json.dumps(commit) + "\n", encoding="utf-8")

    assert not waiting(orders, at(orders, 3))
    write(orders, 9)
    assert waiting(orders, at(orders, 3)).detail == "version 4"


def test_a_deleted_table(tmp_path):
    orders = table(tmp_path / "orders")
    offset = at(orders, 3)
    shutil.rmtree(orders)

    with raises("source-table-missing", "version 3"):
        waiting(orders, offset)


def test_a_table_made_anew_in_its_place(tmp_path):
    orders = table(tmp_path / "orders")
    offset = at(orders, 3)
    shutil.rmtree(orders)
    table(orders, 5)

    with raises("source-table-recreated"):
        waiting(orders, offset)


def test_a_table_whose_first_commit_is_gone_is_still_known(tmp_path):
    orders = table(tmp_path / "orders")
    offset = at(orders, 2)
    DeltaTable(str(orders)).create_checkpoint()
    for version in (0, 1):
        (orders / "_delta_log" / f"{version:020d}.json").unlink()

    assert waiting(orders, offset).count == 1


def test_a_log_that_was_cleaned_up_too_far_names_the_versions(tmp_path):
    orders = table(tmp_path / "orders", 5)
    offset = at(orders, 1)
    DeltaTable(str(orders)).create_checkpoint()
    for version in (1, 2):
        (orders / "_delta_log" / f"{version:020d}.json").unlink()

    with raises("source-log-removed", "Versions 1 to 2"):
        waiting(orders, offset)
    assert waiting(orders, offset, failOnDataLoss="false").count == 2


def test_an_older_copy_of_the_table(tmp_path):
    orders = table(tmp_path / "orders")

    with raises("source-table-restored", "Versions 3 to 6"):
        waiting(orders, at(orders, 7))


def test_a_starting_version_of_the_source(tmp_path):
    orders = table(tmp_path / "orders")

    assert waiting(orders, None, startingVersion="2").count == 1
    assert waiting(orders, None, startingVersion="3").count == 0


def test_latest_is_the_version_that_the_first_run_found(tmp_path):
    orders = table(tmp_path / "orders")
    latest = {"startingVersion": "Latest"}

    assert first_version(TableRef.at(tmp_path / "missing"), latest, None) is None
    assert first_version(TableRef.at(orders), latest, None) == 3
    write(orders, 7)
    assert first_version(TableRef.at(orders), latest, 3) == 3
    assert waiting_versions(TableRef.at(orders), None, what="", reading=TableReading(first=3)).count == 1


def test_a_starting_time_is_the_first_version_that_is_as_new(tmp_path):
    orders = table(tmp_path / "orders")
    for version in range(3):  # 2020-01-01 at 0, 1 and 2 o'clock
        written = 1_577_836_800 + version * 3600
        os.utime(orders / "_delta_log" / f"{version:020d}.json", (written, written))

    for time, version in (
        ("2019-12-31", 0),
        ("2020-01-01T00:00:00.001Z", 1),
        ("2020-01-01 01:00:00", 1),
        ("2020-01-01T02:00:00-01:00", 3),
    ):
        assert first_version(TableRef.at(orders), {"startingTimestamp": time}, None) == version
    with raises("start-invalid", "2999-01-01"):
        first_version(TableRef.at(orders), {"startingTimestamp": "2999-01-01"}, None)


def test_an_older_copy_of_a_table_whose_last_version_was_read_in_part(tmp_path):
    orders = table(tmp_path / "orders")

    with raises("source-table-restored", "Versions 3 to 3"):
        waiting(orders, at(orders, 3, index=1))


def test_a_log_of_which_only_a_checkpoint_is_left_is_not_an_empty_one(tmp_path):
    orders = table(tmp_path / "orders")
    DeltaTable(str(orders)).create_checkpoint()
    for version in (0, 1, 2):
        (orders / "_delta_log" / f"{version:020d}.json").unlink()

    assert not waiting(orders, at(orders, 3))
    with raises("source-log-removed", "Versions 2 to 2"):
        waiting(orders, at(orders, 2))


@pytest.mark.parametrize(("mode", "count"), [("append", 3), ("overwrite", 0)])
def test_a_snapshot_waits_when_it_has_files(tmp_path, mode, count):
    orders = table(tmp_path / "orders", 2)
    write(orders, *([5] if count else []), mode=mode)
    reading = TableReading(guarded=True, snapshot=True)

    assert waiting_versions(TableRef.at(orders), None, what="rows", reading=reading).count == count

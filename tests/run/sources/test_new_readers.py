"""New readers of a table with a history: a snapshot where the log cannot be read, and what the guard accepts."""

import os
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.raising import raises
from tidemill import DeltaAppend, DeltaMerge, DeltaSource, Feed, FileSource, Json, Pipeline, Raw
from tidemill.checkpoint import read_tail
from tidemill.operations.edits.accept import accept_version
from tidemill.records.stream_records import StreamRecords
from tidemill.run.decide.status import status_of
from tidemill.run.tables.new_readers import reads_from_version_0
from tidemill.storage.table_ref import TableRef
from tidemill.testing import multiset
from tidemill.text.names import StreamName

ORDERS = StreamName("shop", "orders")


def same(orders):
    return orders


def readers(*names: str):
    """Streams that copy the table of shop/orders, which the test writes itself."""
    shop = Pipeline("shop")
    orders = shop.stream(source=Feed("orders", format=Raw()), sink=DeltaAppend(), name="orders")(
        lambda lines: lines
    )
    copies = [shop.stream(source=orders, sink=DeltaAppend(), name=name)(same) for name in names]
    return copies[0] if len(copies) == 1 else copies


def append(table, *values: int) -> None:
    write_deltalake(str(table), pa.table({"n": pa.array(values, pa.int64())}), mode="append")


def vacuumed(table) -> None:
    delta = DeltaTable(str(table))
    delta.optimize.compact()
    delta.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def without_log(table, *versions: int) -> None:
    DeltaTable(str(table)).create_checkpoint()
    for version in versions:
        (table / "_delta_log" / f"{version:020d}.json").unlink()


def start_of(scratch, stream):
    [source] = StreamRecords(scratch.lake, stream.name).manifest().active.sources.values()
    return source.start


@pytest.fixture
def table(scratch):
    path = Path(scratch.lake.table(ORDERS).uri)
    append(path, 1)
    append(path, 2)
    append(path, 3)
    return path


HISTORIES = {
    "appends": (lambda table: append(table, 4), True),
    "optimize": (lambda table: DeltaTable(str(table)).optimize.compact(), True),
    "optimize and vacuum": (vacuumed, False),
    "delete": (lambda table: DeltaTable(str(table)).delete("n = 2"), False),
    "log cleanup": (lambda table: without_log(table, 0, 1), False),
}


@pytest.mark.parametrize("history", HISTORIES)
def test_a_log_is_read_only_where_all_of_it_can_be(table, history):
    change, whole = HISTORIES[history]
    change(table)
    assert reads_from_version_0(TableRef.at(table), changes=False) == whole
    assert not reads_from_version_0(TableRef.at(table), changes=True), "the table has no change data feed"


def test_a_table_that_is_not_there_has_no_history(tmp_path):
    assert reads_from_version_0(TableRef.at(tmp_path), changes=False)


@pytest.mark.parametrize(
    "history", ["appends", pytest.param("optimize and vacuum", marks=pytest.mark.campaign), "log cleanup"]
)
def test_a_new_reader_gets_every_row_once(scratch, table, history):
    change, whole = HISTORIES[history]
    change(table)
    copy = readers("copy")
    for values in ((), (10, 11), (12,)):
        if values:
            append(table, *values)
        scratch.run(copy)
        assert scratch.rows(copy) == scratch.table_rows(TableRef.at(table))
    assert start_of(scratch, copy) == ("log" if whole else "snapshot")


def test_a_snapshot_is_one_batch(scratch, table):
    """More files than Delta reads per batch: a watermark would drop rows of a snapshot in several batches."""
    shutil.rmtree(table)
    rows = pa.table({"n": pa.array(range(1010), pa.int64()), "p": pa.array(range(1010), pa.int64())})
    write_deltalake(str(table), rows, partition_by=["p"])
    DeltaTable(str(table)).delete("p = 0")
    copy = readers("copy")
    assert len(scratch.run(copy)[0].batches) == 1
    assert scratch.rows(copy, "n") == multiset((n,) for n in range(1, 1010))


@pytest.mark.parametrize("history", ["appends", "optimize and vacuum"])
def test_a_first_batch_is_repeated_as_it_was(scratch, table, history):
    HISTORIES[history][0](table)
    copy = readers("copy")
    scratch.run(copy)
    expected = scratch.table_rows(TableRef.at(table))
    commits = scratch.checkpoint(copy.name) / "commits"
    for name in ("0", ".0.crc"):
        (commits / name).unlink(missing_ok=True)
    append(table, 20)
    expected += Counter([(20,)])
    scratch.run(copy)
    assert scratch.rows(copy) == expected


@pytest.mark.parametrize("start", [{"startingVersion": "latest"}, {"startingTimestamp": "2020-01-01"}])
def test_a_reader_of_new_rows_begins_where_its_first_run_finds_none(scratch, tmp_path, start):
    table = tmp_path / "table"
    append(table, 1)
    os.utime(table / "_delta_log" / f"{0:020d}.json", (0, 0))
    source = DeltaSource(path=str(table), options=start)
    copy = Pipeline("shop").stream(source=source, sink=DeltaAppend(), name="copy")(same)
    assert scratch.run(copy)[0].outcome == "idle"
    assert status_of(copy, scratch.target).state == "idle"

    append(table, 2)
    append(table, 3)
    assert status_of(copy, scratch.target).reasons == ("2 versions in orders",)
    scratch.run(copy)
    assert scratch.rows(copy) == multiset([(2,), (3,)])


def test_a_reader_of_one_batch_survives_the_cleanup_of_the_log(scratch, table):
    copy = readers("copy")
    scratch.run(copy)
    assert read_tail(scratch.checkpoint(copy.name)).latest_offset.batch_id == 0
    append(table, 4)
    without_log(table, 0, 1, 2)
    scratch.run(copy)
    append(table, 5)
    scratch.run(copy)
    assert scratch.rows(copy) == multiset([(1,), (2,), (3,), (4,), (5,)])


def test_a_reader_of_one_batch_is_restarted_for_another_source(scratch, table, tmp_path):
    shop = Pipeline("shop")
    orders = shop.stream(source=Feed("orders", format=Raw()), sink=DeltaAppend(), name="orders")(same)
    files = FileSource(path=str(tmp_path / "in"), format="text")
    both = shop.stream(source={"orders": orders, "files": files}, sink=DeltaAppend(), name="both")(
        lambda orders, files: orders.selectExpr("CAST(n AS STRING) AS value").unionByName(files)
    )
    (tmp_path / "in").mkdir()
    scratch.run(both)
    without_log(table, 0, 1)
    (tmp_path / "in" / "a").write_text("a\n")
    scratch.run(both)
    assert scratch.rows(both) == multiset([("1",), ("2",), ("3",), ("a",)])


def test_a_table_that_was_restored_and_written_again_is_refused(scratch, table, tmp_path):
    copy = readers("copy")
    shutil.copytree(table, tmp_path / "backup")
    append(table, 4)
    scratch.run(copy)
    newest = tmp_path / "newest"
    table.rename(newest)
    shutil.copytree(tmp_path / "backup", table)
    append(table, 5)  # the version that had 4: the reader counts it as read
    append(table, 6)
    with raises("upstream-restored", "shop/copy", "version 3"):
        scratch.run(copy)

    shutil.rmtree(table)
    newest.rename(table)
    append(table, 7)
    scratch.run(copy)
    assert scratch.rows(copy) == multiset((n,) for n in (1, 2, 3, 4, 7))


def test_unread_files_that_vacuum_removed_are_refused_before_a_batch(scratch, table):
    copy = readers("copy")
    scratch.run(copy)
    append(table, 4)
    append(table, 5)
    vacuumed(table)
    planned = set((scratch.checkpoint(copy.name) / "offsets").iterdir())
    with raises("upstream-files-vacuumed", "version 3 of shop/orders"):
        scratch.run(copy)
    assert set((scratch.checkpoint(copy.name) / "offsets").iterdir()) == planned


def test_a_reader_of_an_emptied_table_becomes_idle(scratch, table):
    DeltaTable(str(table)).delete()
    copy = readers("copy")
    scratch.run(copy)
    assert scratch.run(copy)[0].outcome == "idle"
    append(table, 4)
    scratch.run(copy)
    assert scratch.rows(copy) == multiset([(4,)])


def test_what_the_guard_refuses_can_be_accepted_by_version(scratch, table):
    first, second = readers("first", "second")
    scratch.run(first)
    DeltaTable(str(table)).delete("n = 2")
    append(table, 4)
    with raises("upstream-rows-changed", "tidemill accept shop/first --version shop/orders@3"):
        scratch.run(first)

    with raises("nothing-to-change", "version 2 of shop/orders"):
        accept_version(first, scratch.target, ORDERS, 2)
    accept_version(first, scratch.target, ORDERS, 3, dry_run=True)
    with raises("upstream-rows-changed"):
        scratch.run(first)
    accept_version(first, scratch.target, ORDERS, 3)
    scratch.run(first)
    assert scratch.rows(first) == multiset([(1,), (2,), (3,), (4,)])
    assert scratch.run(first)[0].outcome == "idle"

    scratch.run(second)  # a reader that begins after the deletion has nothing to accept
    assert scratch.rows(second) == multiset([(1,), (3,), (4,)])
    DeltaTable(str(table)).delete("n = 3")
    with raises("upstream-rows-changed", "version 5 of shop/orders"):
        scratch.run(second)
    accept_version(second, scratch.target, ORDERS, 5)
    assert scratch.run(second)[0].outcome == "idle"


@pytest.mark.campaign
def test_a_new_reader_of_changes_begins_with_the_rows_and_follows(scratch):
    shop = Pipeline("shop")
    feed = Feed("orders", format=Json("id STRING, at BIGINT, price BIGINT"))
    sink = DeltaMerge(keys=["id"], sequence_by="at")
    orders = shop.stream(source=feed, sink=sink, name="orders")(same)
    log = shop.stream(source=orders.changes(), sink=DeltaAppend(), name="log")(
        lambda changes: changes.selectExpr("id", "price", "_change_type AS kind")
    )
    scratch.run(orders, [[{"id": "a", "at": 1, "price": 1}, {"id": "b", "at": 1, "price": 2}]])
    scratch.run(orders, [[{"id": "a", "at": 2, "price": 3}]])
    engine = scratch.engine.new()
    engine.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    engine.sql(f"OPTIMIZE delta.`{scratch.lake.table(ORDERS)}`")
    engine.sql(f"VACUUM delta.`{scratch.lake.table(ORDERS)}` RETAIN 0 HOURS")

    scratch.run(log)
    assert start_of(scratch, log) == "snapshot"
    assert scratch.rows(log) == multiset([("a", 3, "insert"), ("b", 2, "insert")])
    assert scratch.run(log)[0].outcome == "idle"
    scratch.run(orders, [[{"id": "b", "at": 2, "price": 4}]])
    scratch.run(log)
    expected = [("b", 2, "update_preimage"), ("b", 4, "update_postimage")]
    assert scratch.rows(log) == multiset([("a", 3, "insert"), ("b", 2, "insert"), *expected])

"""Adoption: a stream continues what plain Spark began, and every row is in the table exactly once."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from pyspark.sql import functions as F

from tests.checkpoint import handmade
from tests.support.raising import raises
from tidemill import DeltaAppend, DeltaMerge, DeltaOverwrite, FileSource, Pipeline, QueryOptions
from tidemill.checks.evaluation import evaluate
from tidemill.operations.generations.adopt import STEPS, _Adopting, adopt
from tidemill.records.stream_records import StreamRecords
from tidemill.storage.lake import Lake
from tidemill.storage.local_store import LocalStore
from tidemill.storage.table_ref import TableRef
from tidemill.testing import Scratch, multiset
from tidemill.text.names import StreamName

SCHEMA = "id INT, at TIMESTAMP"


def counted(events):
    windows = events.groupBy(F.window("at", "10 minutes").alias("w")).agg(F.count("*").alias("n"))
    return windows.select("w.start", "n")


def declared(folder, *, delay="5 minutes"):
    """The stream of a query that counts the events of two folders."""
    pipeline = Pipeline("shop")
    sources = {
        name: FileSource(path=str(folder / name), format="json", schema=SCHEMA).with_watermark("at", delay)
        for name in ("second", "first")
    }

    @pipeline.stream(source=sources, sink=DeltaAppend(), query=QueryOptions(shuffle_partitions=2))
    def windows(second, first):
        return counted(first.unionByName(second))

    return windows


def arrive(folder, name, *minutes):
    (folder / name).mkdir(exist_ok=True)
    lines = [
        json.dumps({"id": minute, "at": f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z"})
        for minute in minutes
    ]
    number = len(list((folder / name).glob("*.json")))
    (folder / name / f"{number}.json").write_text("\n".join(lines))


def expected(*minutes):
    """The windows of ten minutes that 18:00 minus the delay closes."""
    counts = {minute // 10 * 10: 0 for minute in minutes}
    for minute in minutes:
        counts[minute // 10 * 10] += 1
    closed = {begin: n for begin, n in counts.items() if begin + 10 <= 18 * 60 - 5}
    return multiset(
        (datetime(2026, 1, 1, begin // 60, begin % 60, tzinfo=UTC), n) for begin, n in closed.items()
    )


@pytest.fixture(scope="module")
def plain(engine, tmp_path_factory):
    """A query of plain Spark with offsets of version 1, which has committed two batches."""
    folder = tmp_path_factory.mktemp("plain")
    spark = engine.new()
    for conf, value in {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    }.items():
        spark.conf.set(conf, value)
    for arrival in ([1, 2, 11], [12, 21]), ([3, 13, 601], [14, 602]):
        arrive(folder, "first", *arrival[0])
        arrive(folder, "second", *arrival[1])
        first, second = (
            spark.readStream.schema(SCHEMA).json(str(folder / name)).withWatermark("at", "5 minutes")
            for name in ("first", "second")
        )
        writer = counted(first.unionByName(second)).writeStream.format("delta").outputMode("append")
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        writer.trigger(availableNow=True).start(str(folder / "table")).awaitTermination()
    assert (folder / "checkpoint" / "offsets" / "0").read_text().startswith("v1\n")
    return folder


def copy_of(plain, tmp_path):
    for name in ("checkpoint", "table"):
        shutil.copytree(plain / name, tmp_path / name)
    return tmp_path / "checkpoint", tmp_path / "table"


def test_a_stream_continues_the_state_and_the_table_of_a_query_of_plain_spark(scratch, plain, tmp_path):
    checkpoint, table = copy_of(plain, tmp_path)
    windows = declared(plain)
    adopt(windows, scratch.target, checkpoint, table=table, dry_run=True)
    assert table.exists()
    assert not Path(scratch.lake.uri).exists()

    plan = adopt(windows, scratch.target, checkpoint, table=table)
    assert "0 is 'first', 1 is 'second'" in " ".join(plan.effects)
    arrive(plain, "first", 603, 1080)
    arrive(plain, "second", 604, 1081)
    scratch.run(windows)
    assert scratch.rows(windows, "start", "n") == expected(1, 2, 3, 11, 12, 13, 14, 21, 601, 602, 603, 604)
    [check] = evaluate(windows, scratch.target, datetime.now(UTC), names=["exactly_once"])
    assert check.passed, check.summary
    with raises("stream-has-run"):
        adopt(windows, scratch.target, checkpoint, table=table)


@pytest.mark.slow
def test_a_table_is_copied_into_a_bucket_with_its_log_last(bucket, tmp_path, monkeypatch):
    """A copy that was interrupted is finished, and the original stays."""
    for version in range(12):
        write_deltalake(str(tmp_path / "table"), pa.table({"n": [version]}), mode="append")
    lake = Lake(bucket.below(tmp_path.name))
    adopting = _Adopting(
        declared(tmp_path),
        Scratch(lake=lake, landing=tmp_path, engine=None).target,
        StreamRecords(lake, StreamName("shop", "windows")),
        LocalStore(tmp_path / "checkpoint"),
        TableRef.at(tmp_path / "table"),
    )
    table, copied, copy = lake.table(StreamName("shop", "windows")), [], LocalStore.copy

    def killed_at_the_sixth_version(store, source, to, into):
        if "_delta_log" in source and len(copied) == 17:
            raise Killed
        copied.append(source)
        copy(store, source, to, into)

    monkeypatch.setattr(LocalStore, "copy", killed_at_the_sixth_version)
    with pytest.raises(Killed):
        adopting._move_table()
    assert table.open().version() == 4
    monkeypatch.undo()
    adopting._move_table()
    assert sorted(table.dataset(table.open()).to_table()["n"].to_pylist()) == list(range(12))
    assert TableRef.at(tmp_path / "table").open().version() == 11


class Killed(BaseException):
    """A kill, as far as files can show it."""


@pytest.mark.parametrize(
    "step",
    [pytest.param(step, marks=[] if step == "table" else pytest.mark.campaign) for step in ("begin", *STEPS)],
)
def test_an_adoption_that_was_killed_is_finished_before_the_stream_runs(
    scratch, plain, tmp_path, monkeypatch, step
):
    checkpoint, table = copy_of(plain, tmp_path)
    windows = declared(plain)

    def killed(point, _):
        if point == f"adopt-{step}":
            raise Killed(point)

    with monkeypatch.context() as patched:
        patched.setattr("tidemill.operations.core.steps.pause_point", killed)
        with pytest.raises(Killed):
            adopt(windows, scratch.target, checkpoint, table=table)
    [refused] = scratch.run_all([windows])
    assert refused.error.fix == (
        f"finish it: tidemill adopt {windows.name} --checkpoint {checkpoint} --table {table}"
    )
    adopt(windows, scratch.target, checkpoint, table=table)
    assert not table.exists()
    scratch.run(windows)
    assert StreamRecords(scratch.lake, windows.name).operation() is None


def uncommitted(checkpoint, _table):
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink()


def damaged(checkpoint, _table):
    (checkpoint / "metadata").write_text("{")


def other_folder(checkpoint, _table):
    log = checkpoint / "sources" / "0" / "0"
    log.write_text(log.read_text().replace("/first/", "/elsewhere/"))
    log.with_name(".0.crc").unlink()


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (uncommitted, "batch-not-finished"),
        (damaged, "checkpoint-not-sound"),
        (other_folder, "adopt-sources-differ"),
    ],
)
def test_what_cannot_be_continued_exactly_is_refused(scratch, plain, tmp_path, damage, code):
    checkpoint, table = copy_of(plain, tmp_path)
    damage(checkpoint, table)
    with raises(code):
        adopt(declared(plain), scratch.target, checkpoint, table=table, dry_run=True)


def test_a_table_of_another_query_is_refused(scratch, plain, tmp_path, engine):
    checkpoint, _ = copy_of(plain, tmp_path)
    other = tmp_path / "other"
    engine.new().sql("SELECT current_timestamp() AS start, 1L AS n").write.format("delta").save(str(other))
    with raises("checkpoint-of-another-query", other):
        adopt(declared(plain), scratch.target, checkpoint, table=other, dry_run=True)


class ByHand:
    """A checkpoint of a query of plain Spark that has read four files of the folder /in, and its table."""

    def __init__(self, folder):
        self.checkpoint = handmade.stateless(folder / "checkpoint")
        self.table = folder / "table"
        self.target = Scratch(lake=Lake.at(folder / "lake"), landing=folder, engine=None).target

    def write_table(self, *partitions):
        commit = CommitProperties(app_transactions=[Transaction(handmade.QUERY_ID, 3)])
        rows = pa.table({"day": ["2026-01-01"], "id": [1]})
        write_deltalake(
            str(self.table), rows, partition_by=list(partitions) or None, commit_properties=commit
        )

    def adopt(self, *sinks, mode="append", dry_run=True):
        source = FileSource(path="/in", format="json", schema="day STRING, id INT")
        query = QueryOptions(output_mode=mode)
        copied = Pipeline("shop").stream(source=source, sink=list(sinks), name="copied", query=query)(
            lambda rows: rows
        )
        return adopt(copied, self.target, self.checkpoint, table=self.table, dry_run=dry_run)


@pytest.fixture
def by_hand(tmp_path):
    return ByHand(tmp_path)


def test_a_sink_that_plain_spark_does_not_have_adopts_no_table(by_hand):
    by_hand.write_table()
    for sinks, mode in (
        ([DeltaMerge(keys=["id"], sequence_by="day")], "append"),
        ([DeltaOverwrite()], "complete"),
        ([DeltaAppend(name="copy"), DeltaAppend()], "append"),
    ):
        with raises("adopt-not-possible", "DeltaAppend(...)"):
            by_hand.adopt(*sinks, mode=mode)
    assert "after batch 3" in by_hand.adopt(DeltaAppend()).what


def test_a_state_that_has_the_paths_of_its_checkpoint_is_not_adopted(by_hand):
    by_hand.write_table()
    checkpoint = handmade.stateful(by_hand.checkpoint)
    older = handmade.schema(checkpoint, "string")
    schema = handmade.write(checkpoint / "state/0/_stateSchema/default/0_a", older.read_bytes())
    handmade.remove(older)
    handmade.remove(checkpoint / "state" / "0" / "_metadata" / "metadata")
    handmade.operator(checkpoint, schema=schema)
    for partition in (0, 1):
        handmade.delta(checkpoint, 4, partition=partition, suffix="snapshot")
    with raises("adopt-not-possible", "transformWithState"):
        by_hand.adopt(DeltaAppend())


def test_a_folder_without_a_table_is_not_adopted(by_hand):
    with raises("table-missing", by_hand.target.lake.uri, "--table DIR"):
        by_hand.adopt(DeltaAppend())  # the table may have been moved to its new location already
    by_hand.table.mkdir()
    (by_hand.table / "part.parquet").touch()
    with raises("table-missing", "--table DIR"):
        by_hand.adopt(DeltaAppend())


def test_a_table_with_other_partitions_than_the_sink_is_not_adopted(by_hand):
    by_hand.write_table("day")
    for sink in (DeltaAppend(), DeltaAppend(partition_by=["id"])):
        with raises("partitions-differ", by_hand.table, "DeltaAppend(partition_by=['day'])"):
            by_hand.adopt(sink)
    assert "after batch 3" in by_hand.adopt(DeltaAppend(partition_by=["day"])).what


@pytest.mark.slow
@pytest.mark.parametrize("lake", ["folder", "store"])
def test_a_query_on_s3_is_adopted_into_a_folder_and_into_a_bucket(by_hand, bucket, tmp_path, lake):
    by_hand.write_table()
    of_query = bucket.below(tmp_path.name)
    for folder in (by_hand.checkpoint, by_hand.table):
        for file in LocalStore(folder).walk():
            of_query.create(f"{folder.name}/{file.key}", LocalStore(folder).read(file.key))
    files = LocalStore(tmp_path / "lake") if lake == "folder" else of_query.below("lake")
    by_hand.target = replace(by_hand.target, lake=Lake(files, access=bucket.settings))
    by_hand.checkpoint, by_hand.table = f"{of_query}/checkpoint", f"{of_query}/table"

    plan = by_hand.adopt(DeltaAppend(), dry_run=False)

    name = StreamName("shop", "copied")
    assert f"The table is copied from {of_query}/table to" in " ".join(plan.effects)
    table = by_hand.target.lake.table(name)
    assert table.dataset(table.open()).to_table().to_pylist() == [{"day": "2026-01-01", "id": 1}]
    snapshot = StreamRecords(by_hand.target.lake, name).snapshot()
    assert (snapshot.tail.query_id, snapshot.main_table.newest_batch) == (handmade.QUERY_ID, 3)
    assert of_query.names("table"), "the original stays"

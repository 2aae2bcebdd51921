"""The backlog agrees with Spark: nothing waits after a run, and what a run then reads is what waited."""
# ruff: noqa: S608 - the SQL has paths of the test

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable, write_deltalake

from tests.support.raising import raises
from tidemill.checkpoint import file_source_paths, read_tail
from tidemill.connectors.connector import Reading, SourceContext
from tidemill.connectors.delta.source import DeltaSource
from tidemill.connectors.files.source import FileSource
from tidemill.connectors.kafka.source import KafkaSource
from tidemill.connectors.registry import backlog_of, connector_of
from tidemill.definitions.source import Source, StreamTable
from tidemill.errors import TerminalError
from tidemill.storage.lake import Lake
from tidemill.storage.table_ref import TableRef
from tidemill.target.target import KafkaCluster, Target
from tidemill.text.names import StreamName


def target(root: Path, bootstrap: str = "") -> Target:
    """A target of one cluster."""
    return Target(name="t", lake=Lake.at(root), clusters={"default": KafkaCluster(bootstrap=bootstrap)})


class Reader:
    """A stream that reads a source to its end and writes nothing."""

    def __init__(self, engine, source: Source, target: Target, name: str = "checkpoint") -> None:
        self.spark = engine.new()
        self.source, self.target = source, target
        self.checkpoint = Path(target.lake.uri) / name
        for key in ("queryEvolution.enableSourceEvolution", "offsetLog.formatVersion"):
            self.spark.conf.set(f"spark.sql.streaming.{key}", "true" if key.startswith("query") else "2")

    def run(self) -> int:
        """One available-now run; gives the rows that it read."""
        context = SourceContext(self.spark, self.target)
        rows = connector_of(self.source).open(self.source, context, "rows")
        query = (
            rows.writeStream.format("noop")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    def taken(self) -> int:
        """The files in the source's log."""
        return len(list(file_source_paths(self.checkpoint, "rows")))

    def waiting(self) -> int:
        offsets = read_tail(self.checkpoint).latest_offset if self.checkpoint.exists() else None
        return backlog_of(
            self.source,
            Reading(
                target=self.target,
                name="rows",
                offset=None if offsets is None else offsets.source("rows"),
                checkpoint=self.checkpoint,
            ),
        ).count


NAMES = ["a.json", "_b.json", ".c.json", "_x=1.json", "d._COPYING_", "sp ace.json", "ü.json", "100%.json"]
NAMES += ["plus+.json", "a%20b.json", "sh#arp.json", "no_ending"]


def folder(place: Path, *names: str) -> Path:
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("x\n", encoding="utf-8")
    return place


@pytest.mark.parametrize(
    ("names", "new", "options"),
    [
        ([*NAMES, "sub/y.json"], "new.json", {}),
        ([*NAMES, "sub/y.json", "_sub/z.json"], "sub/new.json", {"recursiveFileLookup": "true"}),
        ([*NAMES], "spring.json", {"pathGlobFilter": "{a,sp*}.json"}),
        (["day=1/a", "day=2/_b", "day=2/c", "_old/day=3/d"], "day=4/new", {}),
        (["x/day=1/a"], "x/day=2/new", {}),
    ],
)
def test_files(engine, tmp_path, names, new, options):
    landing = folder(tmp_path / "in", *names)
    reader = Reader(engine, FileSource(path=str(landing), format="text", options=options), target(tmp_path))

    waited = reader.waiting()
    assert reader.run()
    assert waited == reader.taken()
    assert reader.waiting() == 0

    folder(landing, new)
    assert reader.waiting() == 1
    assert reader.run()
    assert reader.taken() == waited + 1
    assert reader.waiting() == 0


def test_files_that_are_too_old(engine, tmp_path):
    landing = folder(tmp_path / "in", "new")
    source = FileSource(path=str(landing), format="text", options={"maxFileAge": "7d"})
    reader = Reader(engine, source, target(tmp_path))
    assert reader.run()

    folder(landing, "old")
    os.utime(landing / "old", (1_700_000_000, 1_700_000_000))
    assert (reader.waiting(), reader.run()) == (0, 0)


def test_spark_reads_files_twice_beside_a_name_with_a_glob_character(engine, tmp_path):
    """Why such a name is refused. When this fails, Spark has fixed it and the refusal can go."""
    landing = folder(tmp_path / "in", "a.json", "b.json", "c[1].json")
    reader = Reader(engine, FileSource(path=str(landing), format="text"), target(tmp_path))

    with raises("name-is-pattern", "c[1].json"):
        reader.waiting()
    assert reader.run() == 5


def test_a_missing_folder_is_an_error_for_both(engine, tmp_path):
    reader = Reader(engine, FileSource(path=str(tmp_path / "gone"), format="text"), target(tmp_path))

    with pytest.raises(TerminalError):
        reader.waiting()
    with pytest.raises(Exception, match="PATH_NOT_FOUND"):
        reader.run()


def write(table: Path, *values: int) -> None:
    write_deltalake(str(table), pa.table({"n": pa.array(values, pa.int64())}), mode="append")


def test_delta(engine, tmp_path):
    orders = tmp_path / "orders"
    write(orders, 1, 2)
    write(orders, 3)
    reader = Reader(engine, DeltaSource(path=str(orders)), target(tmp_path))

    assert reader.waiting() == 2
    assert reader.run() == 3
    assert reader.waiting() == 0

    DeltaTable(str(orders)).optimize.compact()
    assert reader.waiting() == 0

    write(orders, 4)
    assert reader.waiting() == 1
    assert reader.run() == 1
    assert reader.waiting() == 0


def test_delta_in_the_middle_of_a_version(engine, tmp_path):
    orders = tmp_path / "orders"
    rows = pa.table({"n": pa.array(range(4), pa.int64()), "p": pa.array(["a", "b", "c", "d"])})
    write_deltalake(str(orders), rows.slice(0, 0), partition_by=["p"])
    write_deltalake(str(orders), rows, mode="append")
    source = DeltaSource(path=str(orders), max_files_per_batch=1, options={"startingVersion": "0"})
    reader = Reader(engine, source, target(tmp_path))
    assert reader.run() == 4
    assert reader.waiting() == 0

    # As if the run had been stopped after its first file.
    for log in ("offsets", "commits"):
        for file in (reader.checkpoint / log).iterdir():
            if file.name.removesuffix(".crc").strip(".") != "0":
                file.unlink()
    assert reader.waiting() == 1
    assert reader.run() == 3


class Table:
    """A table with a change data feed, to which each kind of commit is made once."""

    def __init__(self, engine, target: Target) -> None:
        self.spark = engine.new()
        self.path = Path(target.lake.table(ORDERS).uri)
        self.sql(f"CREATE TABLE {self} (n BIGINT, p STRING) USING delta PARTITIONED BY (p) "
                 "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")  # fmt: skip
        self.append((1, "a"), (2, "a"))
        self.append((3, "a"), (4, "b"), (5, "c"), (6, "d"))

    def __str__(self) -> str:
        return f"delta.`{self.path}`"

    def sql(self, statement: str) -> None:
        self.spark.sql(statement)

    def append(self, *rows: tuple[int, str], **options: str) -> None:
        frame = self.spark.createDataFrame(rows, "n BIGINT, p STRING").coalesce(1)
        frame.write.format("delta").mode("append").options(**options).save(str(self.path))

    def merge(self, rows: str, clauses: str) -> None:
        self.sql(f"MERGE INTO {self} t USING (VALUES {rows} AS s(n, p)) s ON t.n = s.n {clauses}")


UPDATE = "WHEN MATCHED THEN UPDATE SET t.p = s.p"
INSERT = "WHEN NOT MATCHED THEN INSERT *"
DELETE = "WHEN MATCHED THEN DELETE"
ORDERS = StreamName("shop", "orders")

# A commit of each kind, and whether a reader of new rows and one of changes have something to read in it.
COMMITS = {
    "append": (lambda t: t.append((7, "a"), (8, "b")), True, True),
    "append of nothing": (lambda t: t.append(txnAppId="a", txnVersion="1"), False, False),
    "update": (lambda t: t.sql(f"UPDATE {t} SET p = 'z' WHERE n = 3"), False, True),
    "delete of a part of a file": (lambda t: t.sql(f"DELETE FROM {t} WHERE n = 3"), False, True),
    "delete of whole files": (lambda t: t.sql(f"DELETE FROM {t} WHERE p = 'b'"), False, True),
    "delete of nothing": (lambda t: t.sql(f"DELETE FROM {t} WHERE n = 99"), False, False),
    "merge that inserts": (lambda t: t.merge("(9, 'a')", INSERT), True, True),
    "merge that updates": (lambda t: t.merge("(3, 'y'), (4, 'y')", UPDATE + " " + INSERT), False, True),
    "merge that deletes": (lambda t: t.merge("(4, 'b'), (5, 'c')", DELETE), False, True),
    "merge of nothing": (lambda t: t.merge("(3, 'y')", "WHEN MATCHED AND s.p = 'no' THEN DELETE"), False, False),
    "optimize": (lambda t: t.sql(f"OPTIMIZE {t}"), False, False),
    "alter": (lambda t: t.sql(f"ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')"), False, False),
    "overwrite": (lambda t: t.sql(f"INSERT OVERWRITE {t} VALUES (1, 'a')"), False, True),
    "restore": (lambda t: t.sql(f"RESTORE {t} TO VERSION AS OF 1"), False, True),
}  # fmt: skip
READINGS = {
    "append": StreamTable(stream=ORDERS, mode="append", is_merge=False),
    "changes": StreamTable(stream=ORDERS, mode="changes", is_merge=False),
}


@pytest.mark.campaign
def test_every_kind_of_commit(engine, tmp_path):
    """Idle means that Spark would read no row; what is guarded stops a reader before Spark skips it."""
    table = Table(engine, target(tmp_path))
    readers = {mode: Reader(engine, source, target(tmp_path), mode) for mode, source in READINGS.items()}
    for reader in readers.values():
        reader.run()
    wrong = [mode for mode, reader in readers.items() if reader.waiting()]
    for kind, (commit, *reads) in COMMITS.items():
        head = DeltaTable(str(table.path)).version()
        table.append((3, "a"), (4, "b"), (5, "c"))
        [reader.run() for reader in readers.values()]
        commit(table)
        removes = any(commit.removes_rows for commit in TableRef.at(table.path).log.commits(head + 2))
        for (mode, reader), expected in zip(readers.items(), reads, strict=True):
            waiting, rows = reader.waiting(), reader.run()
            if bool(waiting) != (expected or (mode == "append" and removes)) or bool(rows) != expected:
                wrong.append(f"{kind}, {mode}: {waiting} waiting, {rows} read")
            if reader.waiting():
                wrong.append(f"{kind}, {mode}: waiting after it was read")
    assert wrong == []


@pytest.mark.parametrize("mode", ["append", "changes"])
def test_a_commit_that_was_read_in_part(engine, tmp_path, mode):
    lake = target(tmp_path)
    table = Table(engine, lake)
    path = str(table.path)
    reader = Reader(engine, DeltaSource(path=path, mode=mode, max_files_per_batch=1), lake)
    reader.source = replace(reader.source, options={"startingVersion": "0"})
    assert reader.run() == 6
    assert reader.waiting() == 0

    committed = sorted(
        int(file.name) for file in (reader.checkpoint / "commits").iterdir() if file.name.isdigit()
    )
    for last in reversed(committed[1:]):  # as if the run had been stopped after each of its batches
        for log in ("offsets", "commits"):
            for file in (reader.checkpoint / log).iterdir():
                if file.name.strip(".").removesuffix(".crc") == str(last):
                    file.unlink()
        waiting = reader.waiting()
        copy = reader.checkpoint.with_name("copy")
        shutil.copytree(reader.checkpoint, copy)
        read = reader.run()
        assert bool(waiting) == bool(read), f"{waiting} waiting, {read} read after batch {last - 1}"
        shutil.rmtree(reader.checkpoint)
        copy.rename(reader.checkpoint)


@pytest.mark.kafka
def test_kafka(engine, broker, tmp_path):
    broker.create_topic("backlog-against-spark", 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})

    def send(count: int) -> None:
        for number in range(count):
            producer.produce("backlog-against-spark", str(number), partition=number % 2)
        assert producer.flush(20) == 0

    send(5)
    source = KafkaSource(subscribe=("backlog-against-spark",))
    reader = Reader(engine, source, target(tmp_path, broker.bootstrap))

    assert reader.waiting() == 5
    assert reader.run() == 5
    assert reader.waiting() == 0

    send(3)
    assert reader.waiting() == 3
    assert reader.run() == 3
    assert reader.waiting() == 0


@pytest.mark.kafka
@pytest.mark.parametrize("decided", [True, False])
def test_latest_offsets_of_a_first_run_that_failed(engine, broker, tmp_path, decided):
    """Spark had written `metadata`, and where it begins or not even that, but had planned no batch."""
    topic = f"latest-{decided}"
    broker.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, "before")
    assert producer.flush(20) == 0
    source = KafkaSource(subscribe=topic, starting_offsets="latest")
    reader = Reader(engine, source, target(tmp_path, broker.bootstrap))
    assert reader.waiting() == 0
    reader.run()
    for folder in ("offsets", "commits") if decided else ("offsets", "commits", "sources"):
        shutil.rmtree(reader.checkpoint / folder)

    producer.produce(topic, "after")
    assert producer.flush(20) == 0
    assert reader.waiting() == 1
    assert reader.run() == (1 if decided else 0)
    assert reader.waiting() == 0

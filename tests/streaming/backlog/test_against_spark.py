"""The backlog agrees with Spark: nothing waits after a run, and what a run then reads is what waited."""

from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable, write_deltalake

from pipelines.streaming.backlog import backlog_of
from pipelines.streaming.checkpoint import file_source_paths, read_tail
from pipelines.streaming.errors import TerminalError
from pipelines.streaming.records.lake import Lake
from pipelines.streaming.sources import DeltaSource, FileSource, KafkaSource, Source
from pipelines.streaming.sources.source import SourceContext
from pipelines.streaming.target import KafkaCluster, Target


def target(root: Path, bootstrap: str = "") -> Target:
    """A target of one cluster."""
    return Target(name="t", lake=Lake(root), clusters={"default": KafkaCluster(bootstrap=bootstrap)})


class Reader:
    """A stream that reads a source to its end and writes nothing."""

    def __init__(self, engine, source: Source, target: Target) -> None:
        self.spark = engine.new()
        self.source, self.target = source, target
        self.checkpoint = target.lake.root / "checkpoint"
        for key in ("queryEvolution.enableSourceEvolution", "offsetLog.formatVersion"):
            self.spark.conf.set(f"spark.sql.streaming.{key}", "true" if key.startswith("query") else "2")

    def run(self) -> int:
        """One available-now run; gives the rows that it read."""
        rows = self.source.open(SourceContext(self.spark, self.target), "rows")
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
            None if offsets is None else offsets.source("rows"),
            checkpoint=self.checkpoint,
            name="rows",
            target=self.target,
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


def test_spark_reads_files_twice_beside_a_name_with_a_glob_character(engine, tmp_path):
    """Why such a name is refused. When this fails, Spark has fixed it and the refusal can go."""
    landing = folder(tmp_path / "in", "a.json", "b.json", "c[1].json")
    reader = Reader(engine, FileSource(path=str(landing), format="text"), target(tmp_path))

    with pytest.raises(TerminalError, match=r"c\[1\]\.json"):
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

"""Create real checkpoints with Spark, one folder per case, with the facts that Spark reports about each.

`python make.py DIR [CASE ...] [--waiting]` imports no module of this repository, so that it runs with any pyspark
from 3.5 on. With `--waiting` it adds new input after the last run. `DIR/<case>/checkpoint` is the checkpoint.
`DIR/<case>/facts.json` has Spark's `state-metadata`, the partitions in which its `statestore` reader finds rows, the
batches whose state it can read, and the progress of the query.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

SPARK_4 = int(pyspark.__version__.split(".")[0]) >= 4
SPARK_42 = tuple(int(part) for part in pyspark.__version__.split(".")[:2]) >= (4, 2)
SCHEMA = "id LONG, kind STRING, at TIMESTAMP"

HDFS: dict[str, str] = {}
ROCKS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
CHANGELOG = {**ROCKS, "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true"}
STATE_IDS = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}
FIVE_PARTITIONS = {"spark.sql.shuffle.partitions": "5"}
NAMED = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}


@dataclass
class Case:
    """One checkpoint: the query, its settings, and the number of runs that each add three files and read them.

    `fill` copies the input folder to the query's source, if that is not a folder.
    """

    query: Callable[["Scene"], DataFrame]
    confs: dict[str, str] = field(default_factory=dict)
    fill: Callable[["Scene"], None] | None = None
    mode: str = "append"
    runs: int = 2
    files_per_run: int = 3
    files_per_batch: int = 2
    named: bool = False
    needs: bool = True


@dataclass
class Scene:
    """The inputs of a case and the streams that read them."""

    spark: SparkSession
    folder: Path
    case: Case

    def read(self, name: str = "a") -> DataFrame:
        """Return a stream of the rows in one input folder."""
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", self.case.files_per_batch)
        if self.case.named:
            reader = reader.name(name)
        return reader.json(str(self.folder / "input" / name))

    def timed(self, name: str = "a") -> DataFrame:
        """Return the same stream with a watermark of ten minutes."""
        return self.read(name).withWatermark("at", "10 minutes")

    def add(self, run: int, files: int | None = None) -> None:
        """Add the files of one run, or the first few: each file is 15 minutes later than the previous one."""
        first = run * self.case.files_per_run
        for name in ("a", "b"):
            folder = self.folder / "input" / name
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(first, first + (files or self.case.files_per_run)):
                minute = number * 15
                rows = [
                    {
                        "id": number * 10 + row,
                        "kind": "even" if row % 2 == 0 else "odd",
                        "at": f"2026-01-{1 + minute // 1440:02}T{minute // 60 % 24:02}:{minute % 60:02}:{row:02}Z",
                    }
                    for row in range(8)
                ]
                file = folder / f"{number:05}.json"
                file.write_text("".join(json.dumps(row) + "\n" for row in rows))
                stamp = 1_700_000_000 + number  # the source reads files in the order of their times
                os.utime(file, (stamp, stamp))
        if self.case.fill is not None:
            self.case.fill(self)


def _windows(scene: Scene) -> DataFrame:
    return scene.timed().groupBy(F.window("at", "5 minutes"), "kind").count()


def _sessions(scene: Scene) -> DataFrame:
    return scene.timed().groupBy(F.session_window("at", "3 minutes"), "kind").count()


def _running(scene: Scene) -> DataFrame:
    return scene.read().groupBy("kind").count()


def _limit(scene: Scene) -> DataFrame:
    return scene.read().limit(11)


def _total(scene: Scene) -> DataFrame:
    return scene.read().groupBy().count()


def _join(scene: Scene) -> DataFrame:
    left = scene.timed("a").alias("a")
    right = scene.timed("b").alias("b")
    near = F.expr("a.id = b.id AND b.at BETWEEN a.at AND a.at + INTERVAL 5 MINUTES")
    return left.join(right, near, "leftOuter").select("a.id", F.col("a.at").alias("at"), F.col("a.kind"))


def _chained(scene: Scene) -> DataFrame:
    return _join(scene).groupBy(F.window("at", "5 minutes")).count()


def _distinct(scene: Scene) -> DataFrame:
    return scene.timed().dropDuplicates(["id", "at"])


def _distinct_within(scene: Scene) -> DataFrame:
    return scene.timed().dropDuplicatesWithinWatermark(["id"])


def _union(scene: Scene) -> DataFrame:
    return scene.read("a").union(scene.read("b"))


def _rate(scene: Scene) -> DataFrame:
    reader = (
        scene.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).option("numPartitions", 1)
    )
    return reader.load()


def _rows(scene: Scene) -> DataFrame:
    return scene.spark.read.schema(SCHEMA).json(str(scene.folder / "input" / "a"))


def _into_table(scene: Scene) -> None:
    _rows(scene).write.format("delta").mode("append").save(str(scene.folder / "table"))


def _delta(scene: Scene) -> DataFrame:
    reader = scene.spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
    return reader.load(str(scene.folder / "table"))


def _into_topic(scene: Scene) -> None:
    values = _rows(scene).select(F.to_json(F.struct("*")).alias("value"))
    values.write.format("kafka").options(**_kafka_server(), topic=scene.folder.name).save()


def _kafka(scene: Scene) -> DataFrame:
    """Return a stream of the topic with the case's name."""
    reader = scene.spark.readStream.format("kafka").options(**_kafka_server())
    return reader.options(
        subscribe=scene.folder.name, startingOffsets="earliest", maxOffsetsPerTrigger="20"
    ).load()


def _kafka_server() -> dict[str, str]:
    return {"kafka.bootstrap.servers": os.environ["TIDEMILL_TEST_KAFKA"]}


def _with_state(scene: Scene) -> DataFrame:
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

    class Count(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.total = handle.getValueState("total", "n LONG")
            self.seen = handle.getMapState("seen", "id LONG", "at STRING")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803, ARG002
            before = self.total.get()[0] if self.total.exists() else 0
            count = sum(len(part) for part in rows)
            self.total.update((before + count,))
            yield pd.DataFrame({"kind": [key[0]], "n": [before + count]})

        def close(self) -> None:
            pass

    grouped = scene.read().groupBy("kind")
    return grouped.transformWithStateInPandas(
        statefulProcessor=Count(),
        outputStructType="kind STRING, n LONG",
        outputMode="Update",
        timeMode="None",
    )


def _pandas_state(scene: Scene) -> DataFrame:
    import pandas as pd

    def count(key: Any, parts: Any, state: Any) -> Any:
        before = state.get[0] if state.exists else 0
        total = before + sum(len(part) for part in parts)
        state.update((total,))
        yield pd.DataFrame({"kind": [key[0]], "n": [total]})

    return (
        scene.read()
        .groupBy("kind")
        .applyInPandasWithState(count, "kind STRING, n LONG", "n LONG", "update", "NoTimeout")
    )


JOIN_V3 = {**CHANGELOG, "spark.sql.streaming.join.stateFormatVersion": "3"}
NO_DATA_OFF = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
SHORT = {
    "spark.sql.streaming.minBatchesToRetain": "3",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "4",
}

CASES: dict[str, Case] = {
    "stateless": Case(_union),
    "stateless-named": Case(_union, NAMED, named=True, needs=SPARK_42),
    "stateless-long": Case(_union, SHORT, runs=2, files_per_run=13, files_per_batch=1),
    "rate": Case(_rate, runs=1),
    "delta": Case(_delta, fill=_into_table),
    "kafka": Case(_kafka, fill=_into_topic, needs="TIDEMILL_TEST_KAFKA" in os.environ),
    "windows-hdfs": Case(_windows),
    "windows-hdfs-long": Case(_windows, SHORT, runs=2, files_per_run=9, files_per_batch=1),
    "windows-pending": Case(_windows, NO_DATA_OFF),
    "windows-rocksdb": Case(_windows, ROCKS),
    "windows-rocksdb-long": Case(_windows, {**ROCKS, **SHORT}, runs=2, files_per_run=9, files_per_batch=1),
    "windows-changelog": Case(_windows, CHANGELOG),
    "windows-changelog-long": Case(
        _windows, {**CHANGELOG, **SHORT}, runs=2, files_per_run=9, files_per_batch=1
    ),
    "windows-ids": Case(_windows, {**CHANGELOG, **STATE_IDS}, needs=SPARK_4),
    "windows-ids-long": Case(
        _windows,
        {**CHANGELOG, **STATE_IDS, **SHORT},
        runs=2,
        files_per_run=9,
        files_per_batch=1,
        needs=SPARK_4,
    ),
    "windows-ids-snapshots": Case(_windows, {**ROCKS, **STATE_IDS}, needs=SPARK_4),
    "limit": Case(_limit, FIVE_PARTITIONS),
    "limit-ids": Case(_limit, {**FIVE_PARTITIONS, **CHANGELOG, **STATE_IDS}, needs=SPARK_4),
    "total": Case(_total, FIVE_PARTITIONS, mode="complete"),
    "running-complete": Case(_running, mode="complete"),
    "sessions": Case(_sessions),
    "sessions-rocksdb": Case(_sessions, CHANGELOG),
    "distinct": Case(_distinct),
    "distinct-within": Case(_distinct_within, CHANGELOG),
    "join-v2": Case(_join),
    "join-v2-rocksdb": Case(_join, CHANGELOG),
    "join-v3": Case(_join, JOIN_V3, needs=SPARK_4),
    "join-v3-ids": Case(_join, {**JOIN_V3, **STATE_IDS}, needs=SPARK_42),
    "join-v2-ids": Case(_join, {**CHANGELOG, **STATE_IDS}, needs=SPARK_4),
    "chained": Case(_chained),
    "chained-named-rocksdb": Case(_chained, {**CHANGELOG, **NAMED}, named=True, needs=SPARK_42),
    "with-state": Case(_with_state, CHANGELOG, mode="update", needs=SPARK_4),
    "pandas-state": Case(_pandas_state, mode="update", needs=SPARK_4),
}


def make(spark: SparkSession, into: Path, name: str) -> None:
    """Create one case: its runs, then the facts that Spark reports."""
    case = CASES[name]
    folder = into / name
    checkpoint = folder / "checkpoint"
    before = {key: spark.conf.get(key, None) for key in case.confs}
    for key, value in case.confs.items():
        spark.conf.set(key, value)
    scene = Scene(spark, folder, case)
    progress: list[dict[str, Any]] = []
    try:
        for run in range(case.runs):
            scene.add(run)
            query = (
                case.query(scene)
                .writeStream.format("noop")
                .outputMode(case.mode)
                .option("checkpointLocation", str(checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            progress += progress_of(query)
        # The settings are still set: the reader does not find the state's format version in the checkpoint.
        facts = {"progress": progress, "query_id": query.id, **_state(spark, checkpoint, case)}
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
    (folder / "facts.json").write_text(json.dumps(facts, default=str))


def progress_of(query: StreamingQuery) -> list[dict[str, Any]]:
    """Return the progress of a query's batches: objects in Spark 4, plain dictionaries before."""
    return [json.loads(entry.json) if hasattr(entry, "json") else entry for entry in query.recentProgress]


def _state(spark: SparkSession, checkpoint: Path, case: Case) -> dict[str, Any]:
    """Return the facts of Spark 4's state readers; nothing for Spark 3.5, which has none."""
    if not SPARK_4 or not (checkpoint / "state").exists():
        return {"operators": [], "stores": {}, "readable": []}
    described = spark.read.format("state-metadata").load(str(checkpoint))
    operators = [row.asDict() for row in described.collect()]
    stores: dict[str, list[int]] = {}
    for operator in operators:
        if case.query is _with_state:
            continue  # its rows are read per state variable
        store = operator["stateStoreName"]
        reader = spark.read.format("statestore").option("operatorId", operator["operatorId"])
        if "join" in operator["operatorName"].lower():
            if store == "default":
                continue
            reader = reader.option("storeName", store)
        counted = reader.load(str(checkpoint)).groupBy("partition_id").count().collect()
        stores[f"{operator['operatorId']}/{store}"] = sorted(row["partition_id"] for row in counted)
    return {
        "operators": [
            {key: value for key, value in operator.items() if key[0] != "_"} for operator in operators
        ],
        "stores": stores,
        "readable": _readable(spark, checkpoint) if case.query is _windows else [],
    }


def _readable(spark: SparkSession, checkpoint: Path) -> list[int]:
    """Return the committed batches after which Spark can still rebuild the state of operator 0."""
    batches = sorted(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal())

    def can_read(batch: int) -> bool:
        try:
            spark.read.format("statestore").option("batchId", batch).load(str(checkpoint)).count()
        except Exception:  # noqa: BLE001 - its error differs with provider and version
            return False
        return True

    return [batch for batch in batches if can_read(batch)]


def session(jars: str, *, maintenance: str = "300ms") -> SparkSession:
    """Return a small local session, with Delta if there are jars."""
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.stateStore.maintenanceInterval", maintenance)
    )
    if jars:
        builder = (
            builder.config("spark.jars", jars)
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config("spark.databricks.delta.snapshotPartitions", "1")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        )
    return builder.getOrCreate()


def main(into: Path, wanted: list[str], *, waiting: bool) -> None:
    """Create all cases that this version of Spark supports, or the named ones."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars = os.environ.get("TIDEMILL_TEST_JARS", "")
    names = [
        name for name in wanted or CASES if CASES[name].needs and (jars or CASES[name].query is not _delta)
    ]
    spark = session(jars)
    try:
        for name in names:
            started = time.monotonic()
            make(spark, into, name)
            if waiting:
                Scene(spark, into / name, CASES[name]).add(CASES[name].runs, files=2)
            print(f"{name}: {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    into, *wanted = (argument for argument in sys.argv[1:] if argument != "--waiting")
    main(Path(into), wanted, waiting="--waiting" in sys.argv)

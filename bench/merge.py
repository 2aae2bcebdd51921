"""Compare a merge in Tidemill with the MERGE of a foreachBatch function by hand.

The table has a row per key, and a round is a batch of changes to random keys, of which a tenth is new. By hand, the
newest change of each key is merged where its sequence is higher, in a numbered transaction. Both tables have a change
data feed, because readers of a merge table need it. A third way is Tidemill with deletion vectors. In a second case the
tables are clustered by the key, and the changes have keys of the newest tenth. The script prints the tables of
docs/performance.md.
"""

import argparse
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from side_by_side import Work, compare, median, peak, print_header, print_row, ratios, work

from tidemill import DeltaMerge, DeltaSource, Pipeline, QueryOptions

_SMALL_BYTES = 2**21
_VECTORS = "spark.databricks.delta.properties.defaults.enableDeletionVectors"


def main() -> None:
    """Measure and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--rows", type=int, default=5_000_000)
    arguments.add_argument("--changes", type=int, default=100_000)
    arguments.add_argument(
        "--keys", nargs="+", choices=["spread", "clustered"], default=["spread", "clustered"]
    )
    options = arguments.parse_args()

    for keys in options.keys:
        measure(options, clustered=keys == "clustered")


def measure(options: argparse.Namespace, *, clustered: bool) -> None:
    """Measure one case and print its table."""
    first_key = options.rows * 9 // 10 if clustered else 0

    def arrive(root: Path, number: int) -> None:
        if not number:
            changes(root, range(options.rows), 0)
            return
        chance = random.Random(number)
        first = options.rows + (number - 1) * options.changes // 10
        new = range(first, first + options.changes // 10)
        known = chance.sample(range(first_key, options.rows), options.changes - len(new))
        changes(root, [*known, *new], number)

    ways = {name: way for name, way in WAYS.items() if not clustered or way is not with_vectors}
    runs = compare(ways, arrive, rounds=options.rounds, case={"clustered": clustered}, memory="2g")
    hand = runs["by hand"]
    where = ", clustered by key" if clustered else ""
    print_header(
        f"{options.changes:,} changes into {options.rows:,} rows{where}", "time", "ratio", "of CPU", "memory"
    )
    for name, ours in runs.items():
        print_row(name, median(ours), ratios(ours, hand), ratios(ours, hand, "cpu"), peak(ours))


def changes(root: Path, keys, seq: int) -> None:  # noqa: ANN001
    """Append changes to the table that all ways read."""
    ids = pa.array(keys, pa.int64())
    columns = {
        "id": ids,
        "seq": pa.array([seq] * len(ids), pa.int64()),
        "name": pa.array([f"name {key % 1000}" for key in keys]),
        "amount": pa.array([float(key % 997 + seq) for key in keys]),
    }
    write_deltalake(str(root / "changes"), pa.table(columns), mode="append")


def by_hand(given: Work) -> Callable[[], object]:
    """Return a function that merges what has arrived with plain PySpark."""
    from delta.tables import DeltaTable
    from pyspark.sql import functions as F

    spark, table = given.spark_as_ours(), str(given.own / "table")
    create = DeltaTable.create(spark).location(table).property("delta.enableChangeDataFeed", "true")
    create.addColumns(spark.read.format("delta").load(str(given.root / "changes")).schema)
    if given.case["clustered"]:
        create.clusterBy("id")
    create.execute()

    def merge(rows, batch_id: int) -> None:  # noqa: ANN001
        session = rows.sparkSession
        session.conf.set("spark.databricks.delta.write.txnAppId", "by_hand")
        session.conf.set("spark.databricks.delta.write.txnVersion", str(batch_id))
        names = [F.col(name) for name in rows.columns]
        newest = rows.groupBy("id").agg(F.max_by(F.struct(*names), "seq").alias("row")).select("row.*")
        merging = DeltaTable.forPath(session, table).alias("t").merge(newest.alias("s"), "t.id = s.id")
        merging.whenMatchedUpdateAll("s.seq > t.seq").whenNotMatchedInsertAll().execute()

    def run() -> None:
        rows = spark.readStream.name("source").format("delta").load(str(given.root / "changes"))
        given.finish(rows.writeStream.foreachBatch(merge))

    return optimizing(given, table, run)


def tidemill(given: Work, options: QueryOptions | None = None) -> Callable[[], object]:
    """Return a function that merges what has arrived with Tidemill."""
    scratch = given.scratch()
    source = DeltaSource(path=str(given.root / "changes"))
    sink = DeltaMerge(keys=["id"], sequence_by="seq", cluster_by=["id"] if given.case["clustered"] else [])
    declare = Pipeline("bench").stream(source=source, sink=sink, query=options or QueryOptions(), name="rows")
    stream = declare(lambda rows: rows)
    return optimizing(given, str(scratch.lake.table(stream.name)), lambda: scratch.run(stream))


def optimizing(given: Work, table: str, run: Callable[[], object]) -> Callable[[], object]:
    """Return the function; its first call also moves the rows of a clustered table into files by key.

    The files are small, so that the table has as many as a far larger one.
    """
    first = iter([given.case["clustered"]])

    def run_and_optimize() -> None:
        run()
        if next(first, False):
            spark = given.spark
            spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(_SMALL_BYTES))
            spark.sql(f"OPTIMIZE delta.`{table}`")

    return run_and_optimize


def with_vectors(given: Work) -> Callable[[], object]:
    """Return the same for a table with deletion vectors."""
    return tidemill(given, QueryOptions(options={_VECTORS: "true"}))


WAYS = {"by hand": by_hand, "Tidemill": tidemill, "Tidemill, deletion vectors": with_vectors}

if __name__ == "__main__":
    work(WAYS) or main()

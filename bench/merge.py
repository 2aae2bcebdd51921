"""Compare a merge in Tidemill with the MERGE of a foreachBatch function by hand.

The table has a row per key, and a round is a batch of changes to random keys, of which a tenth is new. By hand, the
newest change of each key is merged where its sequence is higher, in a numbered transaction. Both tables have a change
data feed, because readers of a merge table need it. A third way is Tidemill with deletion vectors. The script prints a
table of docs/performance.md.
"""

import argparse
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from side_by_side import Work, compare, median, peak, print_header, print_row, ratios, work

from pipelines.streaming import DeltaMerge, DeltaSource, Pipeline, QueryOptions

_VECTORS = "spark.databricks.delta.properties.defaults.enableDeletionVectors"


def main() -> None:
    """Measure and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--rows", type=int, default=5_000_000)
    arguments.add_argument("--changes", type=int, default=100_000)
    options = arguments.parse_args()

    def arrive(root: Path, number: int) -> None:
        if not number:
            changes(root, range(options.rows), 0)
            return
        chance = random.Random(number)
        first = options.rows + (number - 1) * options.changes // 10
        new = range(first, first + options.changes // 10)
        changes(root, [*chance.sample(range(options.rows), options.changes - len(new)), *new], number)

    runs = compare(WAYS, arrive, rounds=options.rounds, memory="2g")
    hand = runs["by hand"]
    print_header(
        f"{options.changes:,} changes into {options.rows:,} rows", "time", "ratio", "of CPU", "memory"
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
    create.addColumns(spark.read.format("delta").load(str(given.root / "changes")).schema).execute()

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

    return run


def tidemill(given: Work, options: QueryOptions | None = None) -> Callable[[], object]:
    """Return a function that merges what has arrived with Tidemill."""
    scratch = given.scratch()
    source, sink = DeltaSource(path=str(given.root / "changes")), DeltaMerge(keys=["id"], sequence_by="seq")
    declare = Pipeline("bench").stream(source=source, sink=sink, query=options or QueryOptions(), name="rows")
    stream = declare(lambda rows: rows)
    return lambda: scratch.run(stream)


def with_vectors(given: Work) -> Callable[[], object]:
    """Return the same for a table with deletion vectors."""
    return tidemill(given, QueryOptions(options={_VECTORS: "true"}))


WAYS = {"by hand": by_hand, "Tidemill": tidemill, "Tidemill, deletion vectors": with_vectors}

if __name__ == "__main__":
    work(WAYS) or main()

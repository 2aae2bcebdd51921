"""Streams that observe, one per way into a table, and their run: `python -m tests.conformance.streams.observing`."""

import sys
from pathlib import Path

from tests.support.killed import run_side_by_side, scratch_at
from tidemill import DeltaAppend, DeltaMerge, Expect, Feed, FileSource, Json, Pipeline, QueryOptions
from tidemill import functions as F

VIEW = "user STRING, n BIGINT"


def streams(landing: Path) -> Pipeline:
    """Streams that all read the files of one folder, one file per batch."""
    shop = Pipeline("shop")
    feed = Feed("views", format=Json(VIEW), rules={"positive": "n > 0"}, max_files_per_batch=1)
    files = FileSource(path=str(landing / "views"), format="json", schema=VIEW, max_files_per_batch=1)

    @shop.stream(source=feed, sink=DeltaAppend(), expect=[Expect("small", "n < 100", on_violation="drop")])
    def mon_observe_feed(views):
        """A feed, whose function runs per batch, in the job that writes the table."""
        return views.observe("arrived", F.count("*").alias("n"), F.max("n").alias("largest"))

    @shop.stream(source=feed, sink=DeltaMerge(keys=["user"], sequence_by="n"))
    def mon_observe_merge(views):
        """A feed whose batches are computed before they are merged."""
        both = views.where("n % 2 = 0").union(
            views.where("n % 2 = 1").observe("odd", F.count("*").alias("n"))
        )
        return both.observe("arrived", F.count("*").alias("n"), F.avg("n").alias("mean"))

    @shop.stream(source=files, sink=DeltaAppend())
    def mon_observe(views):
        """Counts and extremes of what passes here, in the ledger and as plots in Dagster."""
        large = views.where("n > 1")
        return large.observe("large", F.count("*").alias("n"), F.min("n").alias("least"), F.sum("n"))

    @shop.stream(source=files, sink=DeltaMerge(keys=["user"]), query=QueryOptions(output_mode="update"))
    def mon_observe_state(views):
        """What a stateful query emits."""
        groups = views.groupBy("user").agg(F.sum("n").alias("n"))
        return groups.observe("groups", F.count("*").alias("n"), F.avg("n").alias("mean"))

    return shop


def main() -> None:
    """One run of all streams, side by side."""
    lake, landing = sys.argv[1:]
    run_side_by_side(scratch_at(lake, landing), [*streams(Path(landing))])


if __name__ == "__main__":
    main()

"""One stream for each stateful row of the conformance table, and a run of them all:
`python -m tests.conformance.streams.stateful LAKE LANDING`.

A function has the id of its row as its name; docs/gallery.md shows it as it stands here.
"""

import sys
from dataclasses import replace
from pathlib import Path

from tests.support.killed import run_side_by_side, scratch_at
from tidemill import DeltaAppend, DeltaMerge, DeltaOverwrite, FileSource, Pipeline, QueryOptions, Stream
from tidemill import functions as F

DELAY = "60 minutes"
VIEW = "view_id STRING, user STRING, ad STRING, at TIMESTAMP"
CLICK = "click_id STRING, viewed STRING, clicked_at TIMESTAMP"
# A click belongs to a view for twenty minutes.
SOON = "viewed = view_id AND clicked_at BETWEEN at AND at + INTERVAL 20 MINUTES"
BUY = "buyer STRING, amount BIGINT, bought_at TIMESTAMP"
VISIT = "visit_id STRING, at TIMESTAMP"


def stateful(landing: Path) -> Pipeline:
    """Return the streams, which read the folders `views`, `clicks`, `buys` and `visits`."""
    shop = Pipeline("shop")
    views, clicks, buys, visits = (
        FileSource(path=str(landing / name), format="json", schema=schema)
        for name, schema in (("views", VIEW), ("clicks", CLICK), ("buys", BUY), ("visits", VISIT))
    )
    views, clicks, buys = (
        views.with_watermark("at", DELAY),
        clicks.with_watermark("clicked_at", DELAY),
        buys.with_watermark("bought_at", DELAY),
    )
    _aggregations(shop, views)
    _windows(shop, views)
    _late(shop, visits)
    _several_inputs(shop, views, clicks)
    _joins(shop, views, clicks, buys)
    _without_duplicates(shop, views)
    _own_function(shop, views)
    _own_processor(shop, views)
    _own_values(shop, views)
    _stores(shop, views)
    return shop


def _aggregations(shop: Pipeline, views) -> None:
    @shop.stream(
        source={"views": views},
        sink=DeltaMerge(keys=["user"]),
        query=QueryOptions(output_mode="update"),
    )
    def op_agg(views):
        """The newest count of each user: each batch updates the users that it has."""
        return views.groupBy("user").agg(F.count("*").alias("views"), F.max("at").alias("last"))

    @shop.stream(
        source={"views": views},
        sink=DeltaOverwrite(),
        query=QueryOptions(output_mode="complete"),
    )
    def op_agg_complete(views):
        """The same, where each batch writes all users, sorted."""
        counts = views.groupBy("user").agg(F.count("*").alias("views"), F.max("at").alias("last"))
        return counts.orderBy("user")


def _windows(shop: Pipeline, views) -> None:
    @shop.stream(source={"views": views}, sink=DeltaAppend())
    def win_tumbling(views):
        """Views in each ten minutes, written once, when the watermark has passed them."""
        windows = views.groupBy(F.window("at", "10 minutes").alias("w"), "ad").count()
        return windows.select("w.start", "ad", "count")

    @shop.stream(source={"views": views}, sink=DeltaAppend())
    def win_sliding(views):
        """Views in the last ten minutes, every five minutes."""
        windows = views.groupBy(F.window("at", "10 minutes", "5 minutes").alias("w"), "ad").count()
        return windows.select("w.start", "ad", "count")

    @shop.stream(source={"views": views}, sink=DeltaAppend())
    def win_session(views):
        """Visits: views of a user with less than four minutes in between."""
        visits = views.groupBy(F.session_window("at", "4 minutes").alias("w"), "user").count()
        return visits.select("w.start", "w.end", "user", "count")

    @shop.stream(source={"views": views}, sink=DeltaAppend())
    def win_session_gap_per_row(views):
        """Visits, where a view of ad a1 keeps a visit open for longer."""
        gap = F.when(F.col("ad") == "a1", "8 minutes").otherwise("3 minutes")
        visits = views.groupBy(F.session_window("at", gap).alias("w"), "user").count()
        return visits.select("w.start", "w.end", "user", "count")

    @shop.stream(source={"views": views}, sink=DeltaAppend())
    def win_time(views):
        """The busiest five minutes of each half an hour: windows over windows."""
        small = views.groupBy(F.window("at", "5 minutes").alias("w")).count()
        large = small.groupBy(F.window(F.window_time("w"), "30 minutes").alias("v"))
        return large.agg(F.max("count").alias("most")).select("v.start", "most")

    @shop.stream(
        source={"views": views}, sink=DeltaMerge(keys=["start"]), query=QueryOptions(output_mode="update")
    )
    def wm_clean(views):
        """Each batch writes the windows that it has changed; the watermark removes them from the state."""
        return views.groupBy(F.window("at", "10 minutes").alias("w")).count().select("w.start", "count")


def _late(shop: Pipeline, visits) -> None:
    @shop.stream(source={"visits": visits.with_watermark("at", "10 minutes")}, sink=DeltaAppend())
    def wm_late(visits):
        """Visits in each five minutes; what comes more than ten minutes late is left out, and counted."""
        return visits.groupBy(F.window("at", "5 minutes").alias("w")).count().select("w.start", "count")


def _several_inputs(shop: Pipeline, views, clicks) -> None:
    @shop.stream(
        source={"views": views, "clicks": clicks},
        sink=DeltaAppend(),
        query=QueryOptions(watermark_policy="min"),
    )
    def wm_multi(views, clicks):
        """Views and clicks together; the watermark is that of the slowest input."""
        events = views.select("at").unionByName(clicks.select(F.col("clicked_at").alias("at")))
        return events.groupBy(F.window("at", "10 minutes").alias("w")).count().select("w.start", "count")

    @shop.stream(
        source={"views": views, "clicks": clicks},
        sink=DeltaAppend(),
        query=QueryOptions(watermark_policy="max"),
    )
    def wm_multi_max(views, clicks):
        """The same; the watermark is that of the fastest input."""
        events = views.select("at").unionByName(clicks.select(F.col("clicked_at").alias("at")))
        return events.groupBy(F.window("at", "10 minutes").alias("w")).count().select("w.start", "count")


def _joins(shop: Pipeline, views, clicks, buys) -> None:
    @shop.stream(source={"views": views, "clicks": clicks}, sink=DeltaAppend())
    def join_inner(views, clicks):
        """Views with the clicks of the next twenty minutes."""
        return views.join(clicks, F.expr(SOON)).select("view_id", "click_id")

    @shop.stream(source={"views": views, "clicks": clicks}, sink=DeltaAppend())
    def join_inner_equal_windows(views, clicks):
        """Views with the clicks of the same half an hour."""
        left = views.select("*", F.window("at", "30 minutes").alias("w"))
        right = clicks.select("*", F.window("clicked_at", "30 minutes").alias("w"))
        return left.join(right.withColumnRenamed("viewed", "view_id"), ["view_id", "w"]).select(
            "view_id", "click_id"
        )

    @shop.stream(source={"views": views, "clicks": clicks}, sink=DeltaAppend())
    def join_outer(views, clicks):
        """Each view with its clicks, or with none once none can come."""
        return views.join(clicks, F.expr(SOON), "left").select("view_id", "click_id")

    @shop.stream(source={"views": views, "clicks": clicks}, sink=DeltaAppend())
    def join_outer_right(views, clicks):
        """Each click with its view, or with none."""
        return views.join(clicks, F.expr(SOON), "right").select("view_id", "click_id")

    @shop.stream(source={"views": views, "clicks": clicks}, sink=DeltaAppend())
    def join_outer_full(views, clicks):
        """Both."""
        return views.join(clicks, F.expr(SOON), "full").select("view_id", "click_id")

    @shop.stream(source={"views": views, "clicks": clicks}, sink=DeltaAppend())
    def join_semi(views, clicks):
        """The views that were clicked, once each."""
        return views.join(clicks, F.expr(SOON), "left_semi").select("view_id")

    @shop.stream(source={"views": views, "clicks": clicks, "buys": buys}, sink=DeltaAppend())
    def join_chain(views, clicks, buys):
        """Purchases after a click, summed up: two joins, of which each keeps one event time, and an aggregation."""
        after = F.expr("buyer = user AND bought_at BETWEEN clicked_at AND clicked_at + INTERVAL 20 MINUTES")
        clicked = views.join(clicks, F.expr(SOON)).select("user", "clicked_at")
        bought = clicked.join(buys, after).select("amount", "bought_at")
        sums = bought.groupBy(F.window("bought_at", "10 minutes").alias("w")).agg(
            F.sum("amount").alias("amount")
        )
        return sums.select("w.start", "amount")


def _without_duplicates(shop: Pipeline, views) -> None:
    @shop.stream(source={"views": views}, sink=DeltaAppend())
    def dedup_key(views):
        """Each view once. Its state grows forever: tidemill warns."""
        return views.dropDuplicates(["view_id"]).select("view_id")

    @shop.stream(source={"views": views}, sink=DeltaAppend())
    def dedup_key_time(views):
        """Each view once, where repeated views have the same time."""
        return views.dropDuplicates(["view_id", "at"]).select("view_id", "at")

    @shop.stream(source={"views": views}, sink=DeltaAppend())
    def dedup_wm(views):
        """Each view once, where a repeated view comes within the delay of the watermark, with any time."""
        return views.dropDuplicatesWithinWatermark(["view_id"]).select("view_id")


def _own_function(shop: Pipeline, views) -> None:
    @shop.stream(source={"views": views}, sink=DeltaAppend())
    def stateful_pandas(views):
        """Visits by a function of one's own: times are kept per user, and a timer of the event time ends a visit."""
        import pandas as pd
        from pyspark.sql.streaming.state import GroupStateTimeout

        gap = 4 * 60_000

        def visits(key, batches, state):
            times = [int(time) for time in state.get[0].split()] if state.exists else []
            for batch in batches:
                times += [int(time.timestamp() * 1000) for time in batch["at"]]
            ended, visit = [], []
            for time in [*sorted(times), float("inf")]:
                if visit and time >= visit[-1] + gap:
                    ended.append(visit)
                    visit = []
                visit.append(time)
            now = state.getCurrentWatermarkMs()
            done = [visit for visit in ended if visit[-1] + gap <= now]
            open_ = [time for visit in ended if visit[-1] + gap > now for time in visit]
            if open_:
                state.update((" ".join(map(str, open_)),))
                state.setTimeoutTimestamp(min(v[-1] for v in ended if v[-1] + gap > now) + gap)
            else:
                state.remove()
            starts = pd.to_datetime([visit[0] for visit in done], unit="ms", utc=True)
            yield pd.DataFrame({"start": starts, "user": key[0], "count": [len(visit) for visit in done]})

        return views.groupBy("user").applyInPandasWithState(
            visits,
            "start TIMESTAMP, user STRING, count BIGINT",
            "times STRING",
            "append",
            GroupStateTimeout.EventTimeTimeout,
        )


def _own_processor(shop: Pipeline, views) -> None:
    @shop.stream(source={"views": views}, sink=DeltaAppend(), query=QueryOptions(state_store="rocksdb"))
    def stateful_tws(views):
        """The same with transformWithState: a list in the state, and a timer for each view."""
        from pyspark.sql import Row
        from pyspark.sql.streaming.stateful_processor import StatefulProcessor

        gap = 4 * 60_000

        class Visits(StatefulProcessor):
            def init(self, handle):
                self.handle = handle
                self.times = handle.getListState("times", "time BIGINT")

            def handleInputRows(self, key, rows, timerValues):
                for row in rows:
                    time = int(row["at"].timestamp() * 1000)
                    self.times.appendValue((time,))
                    self.handle.registerTimer(time + gap)
                return iter(())

            def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
                now, visit, left = expiredTimerInfo.getExpiryTimeInMs(), [], []
                for time in sorted(row[0] for row in self.times.get()):
                    alone = bool(visit) and time >= visit[-1] + gap
                    (left if alone or left else visit).append(time)
                if visit and visit[-1] + gap <= now:
                    self.times.put([(time,) for time in left]) if left else self.times.clear()
                    yield Row(start_ms=visit[0], user=key[0], count=len(visit))

            def close(self):
                pass

        return views.groupBy("user").transformWithState(
            Visits(), "start_ms BIGINT, user STRING, count BIGINT", "Append", "EventTime"
        )


def _own_values(shop: Pipeline, views) -> None:
    @shop.stream(
        source={"views": views},
        sink=DeltaMerge(keys=["user"]),
        query=QueryOptions(state_store="rocksdb", output_mode="update"),
    )
    def stateful_tws_states(views):
        """Counts that begin with an initial state, and the ads of each user, which a TTL removes."""
        from pyspark.sql import Row
        from pyspark.sql.streaming.stateful_processor import StatefulProcessor

        class Counts(StatefulProcessor):
            def init(self, handle):
                self.count = handle.getValueState("count", "n BIGINT")
                self.ads = handle.getMapState("ads", "ad STRING", "n BIGINT", 7 * 24 * 3_600_000)

            def handleInitialState(self, key, initialState, timerValues):
                self.count.update((initialState["n"],))

            def handleInputRows(self, key, rows, timerValues):
                count = self.count.get()[0] if self.count.exists() else 0
                for row in rows:
                    count += 1
                    self.ads.updateValue((row["ad"],), (1,))
                self.count.update((count,))
                yield Row(user=key[0], views=count, ads=len(list(self.ads.keys())))

            def close(self):
                pass

        before = views.sparkSession.createDataFrame([("u0", 100)], "user STRING, n BIGINT").groupBy("user")
        return views.groupBy("user").transformWithState(
            Counts(), "user STRING, views BIGINT, ads BIGINT", "Update", "ProcessingTime", initialState=before
        )


def _stores(shop: Pipeline, views) -> None:
    @shop.stream(
        source={"views": views},
        sink=DeltaMerge(keys=["user"]),
        query=QueryOptions(output_mode="update", state_store="hdfs"),
    )
    def store_hdfs(views):
        """State that is kept in memory, with files in the checkpoint."""
        return views.groupBy("user").agg(F.count("*").alias("views"), F.max("at").alias("last"))

    @shop.stream(
        source={"views": views},
        sink=DeltaMerge(keys=["user"]),
        query=QueryOptions(output_mode="update", state_store="rocksdb"),
    )
    def store_rocksdb(views):
        """State that is kept in RocksDB, with a changelog in the checkpoint; this is the default."""
        return views.groupBy("user").agg(F.count("*").alias("views"), F.max("at").alias("last"))

    @shop.stream(
        source={"views": views},
        sink=DeltaMerge(keys=["user"]),
        query=QueryOptions(output_mode="update", shuffle_partitions=7),
    )
    def store_partitions(views):
        """The first run decides the number of partitions of the state; a later declaration is a warning."""
        return views.groupBy("user").agg(F.count("*").alias("views"), F.max("at").alias("last"))


def before_its_change(stream: Stream) -> Stream:
    """Return a stream as its first run has it: another number of partitions is declared later."""
    if stream.name.stream != "store_partitions":
        return stream
    return replace(stream, query=replace(stream.query, shuffle_partitions=None))


def with_two_tables(pipeline: Pipeline) -> list:
    """Return the streams with a further table each, so that a function of each batch writes them, and not Spark."""
    return [replace(stream, sinks=(DeltaAppend(name="copy"), *stream.sinks)) for stream in pipeline]


def main() -> None:
    """Run all streams once, side by side, in this process."""
    lake, landing = sys.argv[1:]
    run_side_by_side(scratch_at(lake, landing), with_two_tables(stateful(Path(landing))))


if __name__ == "__main__":
    main()

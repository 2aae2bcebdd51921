"""The pipeline `ads` as one would write it by hand: plain PySpark and Delta in one session, one query after another.

It has the same queries with the same confs over the same files into the same kinds of tables. It also separates bad
records and numbers its transactions. It has no lease, no repair, no ledger, no checks and no backlog.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from pipelines import ads
from pipelines.ads.ingest import CAMPAIGN_CHANGE, CLICK, IMPRESSION
from tidemill import QueryOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FEEDS = {
    "impressions": (
        "ad-impressions",
        IMPRESSION,
        "impression_id <> '' AND ad_id <> '' AND user_id <> '' AND event_time IS NOT NULL AND cost_micros >= 0",
    ),
    "clicks": (
        "ad-clicks",
        CLICK,
        "click_id <> '' AND impression_id <> '' AND click_time IS NOT NULL",
    ),
    "campaigns": (
        "ad-campaigns",
        CAMPAIGN_CHANGE,
        (
            "ad_id <> '' AND seq IS NOT NULL AND changed_at IS NOT NULL AND op IN ('upsert', 'delete') "
            "AND (op = 'delete' OR campaign_id <> '')"
        ),
    ),
}
DELAY = "2 hours"
Watermarked = dict[str, tuple[str, str]]


class Baseline:
    """The pipeline by hand, in its own lake."""

    def __init__(self, spark: "SparkSession", *, landing: Path, lake: Path) -> None:
        self.spark, self.landing, self.lake = spark, landing, lake
        for key, value in QueryOptions().confs(default_partitions=2).items():
            spark.conf.set(key, value)

    def run(self) -> None:
        """Process the new input in all queries."""
        self.ingest("impressions", self.append)
        self.ingest("clicks", self.append)
        self.ingest("campaigns", self.merge_history)
        self.native("unique_impressions", ads.unique_impressions(self.stream("impressions", "event_time")))
        self.native("unique_clicks", ads.unique_clicks(self.stream("clicks", "click_time")))
        impressions = "unique_impressions"
        self.native(
            "attribution",
            ads.attribution(
                self.stream(impressions, "event_time", name="impressions"),
                self.stream("unique_clicks", "click_time", name="clicks"),
                self.campaigns(),
            ),
        )
        minutes = ads.campaign_minutes(self.stream(impressions, "event_time"), self.campaigns())
        self.native("campaign_minutes", minutes)
        totals = ads.campaign_totals(self.stream(impressions), self.campaigns())
        writer = totals.writeStream.outputMode("update").foreachBatch(self.merge_totals)
        self.finish("campaign_totals", writer)
        self.native("user_sessions", ads.user_sessions(self.stream(impressions, "event_time")))
        self.native("frequency_alerts", ads.frequency_alerts(self.stream(impressions, "event_time")))

    def table(self, name: str) -> str:
        """Return the folder of a table."""
        return str(self.lake / "tables" / name)

    def stream(self, table: str, event_time: str | None = None, *, name: str = "source") -> "DataFrame":
        """Return a table as a stream, with its watermark."""
        reader = self.spark.readStream.name(name).format("delta").option("startingVersion", "0")
        rows = reader.option("skipChangeCommits", "true").load(self.table(table)).drop("_origin", "_batch")
        return rows.withWatermark(event_time, DELAY) if event_time else rows

    def campaigns(self) -> "DataFrame":
        """Return the history of the campaigns without deletes."""
        rows = self.spark.read.format("delta").load(self.table("campaigns"))
        return rows.where("op = 'upsert'").drop("op", "_origin", "_batch")

    def native(self, name: str, rows: "DataFrame") -> None:
        """Run a query with Spark's own Delta sink."""
        self.finish(name, rows.writeStream.format("delta").option("path", self.table(name)))

    def finish(self, name: str, writer: "DataStreamWriter") -> None:
        """Start a query and wait for its end."""
        checkpoint = str(self.lake / "checkpoints" / name)
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()

    def ingest(self, name: str, write: "Callable[[DataFrame, str, int], None]") -> None:
        """Parse a feed, separate the bad records, and write the rest."""
        feed, schema, rule = FEEDS[name]
        lines = (
            self.spark.readStream.name("records")
            .format("text")
            .option("maxFilesPerTrigger", "1000")
            .load(str(self.landing / feed))
            .where("trim(value) <> ''")
            .withColumn("file", F.input_file_name())
        )
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt_record"}
        parsed = lines.withColumn("p", F.from_json("value", f"{schema}, _corrupt_record STRING", options))
        good = f"p._corrupt_record IS NULL AND p IS NOT NULL AND coalesce({rule}, false)"
        records = parsed.select("value", "file", "p", "p.*").withColumn("good", F.expr(good)).drop("p")

        def write_batch(batch: "DataFrame", batch_id: int) -> None:
            batch.persist()
            bad = batch.where("NOT good").select("value", "file", F.lit(batch_id).alias("batch_id"))
            self.append(bad, f"{name}__quarantine", batch_id)
            rows = batch.where("good").drop("good", "value", "_corrupt_record")
            rows = rows.withColumnRenamed("file", "_origin").withColumn("_batch", F.lit(batch_id))
            if name == "impressions":
                rows = rows.withColumn("event_date", F.to_date("event_time"))
            write(rows, name, batch_id)
            batch.unpersist()

        self.finish(name, records.writeStream.foreachBatch(write_batch))

    def append(self, rows: "DataFrame", table: str, batch_id: int) -> None:
        """Append a batch once."""
        writer = rows.write.format("delta").mode("append").option("txnAppId", table)
        if table == "impressions":
            writer = writer.partitionBy("event_date")
        writer.option("txnVersion", str(batch_id)).save(self.table(table))

    def merge_history(self, changes: "DataFrame", table: str, batch_id: int) -> None:
        """Recompute the versions of the changed campaigns and merge them by key and sequence."""
        spark, path = changes.sparkSession, self.table(table)
        changes = changes.dropDuplicates(["ad_id", "seq"])
        if not (Path(path) / "_delta_log").exists():
            empty = changes.withColumns({"__START_AT": F.col("changed_at"), "__END_AT": F.col("changed_at")})
            empty.limit(0).write.format("delta").option("delta.enableChangeDataFeed", "true").save(path)
        history = spark.read.format("delta").load(path)
        touched = history.join(changes.select("ad_id").distinct(), "ad_id", "left_semi")
        new = changes.join(history.select("ad_id", "seq"), ["ad_id", "seq"], "left_anti")
        following = Window.partitionBy("ad_id").orderBy("seq")
        versions = (
            touched.drop("__START_AT", "__END_AT")
            .unionByName(new)
            .withColumn("__START_AT", F.col("changed_at"))
            .withColumn("__END_AT", F.lead("changed_at").over(following))
        )
        versions.createOrReplaceTempView("versions")
        self.once(
            spark,
            f"MERGE INTO delta.`{path}` t USING versions s ON t.ad_id = s.ad_id AND t.seq = s.seq "
            "WHEN MATCHED AND NOT (s.__END_AT <=> t.__END_AT) THEN UPDATE SET t.__END_AT = s.__END_AT "
            "WHEN NOT MATCHED THEN INSERT *",
            table,
            batch_id,
        )

    def merge_totals(self, totals: "DataFrame", batch_id: int) -> None:
        """Replace the totals of the changed campaigns."""
        spark, path = totals.sparkSession, self.table("campaign_totals")
        totals.persist()
        totals.count()
        if not (Path(path) / "_delta_log").exists():
            empty = totals.limit(0).write.format("delta").option("delta.enableChangeDataFeed", "true")
            empty.save(path)
        totals.createOrReplaceTempView("totals")
        self.once(
            spark,
            f"MERGE INTO delta.`{path}` t USING totals s ON t.campaign_id = s.campaign_id "
            "WHEN MATCHED AND s.impressions > t.impressions THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            "campaign_totals",
            batch_id,
        )
        totals.unpersist()

    def once(self, spark: "SparkSession", statement: str, app_id: str, batch_id: int) -> None:
        """Run a statement with a numbered transaction."""
        spark.conf.set("spark.databricks.delta.write.txnAppId", app_id)
        spark.conf.set("spark.databricks.delta.write.txnVersion", str(batch_id))
        spark.sql(statement)
        spark.conf.unset("spark.databricks.delta.write.txnAppId")
        spark.conf.unset("spark.databricks.delta.write.txnVersion")

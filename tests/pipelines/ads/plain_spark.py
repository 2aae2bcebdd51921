"""The functions of `ads` in plain Structured Streaming, without the runner and without Delta.

There is one `availableNow` query per stream, and they run one after the other in the order of the data. The tables are
parquet. They show the results of Spark itself, run by run.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DateType, TimestampType
from pyspark.sql.window import Window

from pipelines import ads
from tests.pipelines.ads.oracle import COLUMNS, Batch, Row, Table
from tidemill import Stream
from tidemill.connectors.connector import SourceContext
from tidemill.connectors.feed import feed_of
from tidemill.connectors.registry import connector_of
from tidemill.definitions.columns import ORIGIN, RAW, VIOLATED
from tidemill.target.target import FolderBinding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

INGEST = (ads.impressions, ads.clicks, ads.campaigns)
APPEND = (
    ads.unique_impressions,
    ads.unique_clicks,
    ads.attribution,
    ads.campaign_minutes,
    ads.user_sessions,
    ads.frequency_alerts,
)


@dataclass
class PlainSpark:
    """`ads` over a landing folder, with its own tables and checkpoints.

    The table of an ingest stream also contains the bad records, which are marked. Its readers skip them.
    """

    spark: "SparkSession"
    landing: Path
    folder: Path
    _totals: dict[str, Row] = field(default_factory=dict)
    _batches_after_run: dict[str, list[int]] = field(default_factory=dict)

    def run(self) -> None:
        """Process the new input in all streams."""
        for stream in INGEST:
            self._ingest(stream)
        for stream in APPEND:
            for key, value in stream.query.confs(default_partitions=2).items():
                self.spark.conf.set(key, value)
            rows = stream(*self._inputs(stream))
            self._append(rows, stream.name.stream)
            self._batches_after_run.setdefault(stream.name.stream, []).append(
                len(self._watermarks(stream.name.stream))
            )
        totals = ads.campaign_totals(*self._inputs(ads.campaign_totals))
        self._finish(
            totals.writeStream.outputMode("update").foreachBatch(self._update_totals), "campaign_totals"
        )

    def table(self, name: str) -> Table:
        """Return the rows of a table in the form of the oracle."""
        if name == "campaign_totals":
            return Counter(self._totals.values())
        if name == "campaigns":
            return as_table(self._campaigns(), COLUMNS[name])
        stream, _, quarantine = name.partition("__")
        rows = self.spark.read.parquet(str(self.folder / stream))
        if quarantine:
            rows = _bad(rows).select(F.col(RAW).alias("raw"), F.array_sort(VIOLATED).alias("violated"))
        elif feed_of(ads.ads[stream]):
            rows = _good(rows)
        return as_table(rows, COLUMNS[name])

    def batches(self, stream: str, rows_of_runs: Sequence[Iterable[Row]]) -> list[Batch]:
        """Return the batches of a stream: each run has one with rows, and perhaps one without."""
        watermarks = self._watermarks(stream)
        batches: list[Batch] = []
        for rows, until in zip(rows_of_runs, self._batches_after_run[stream], strict=True):
            of_run = watermarks[len(batches) : until]
            batches += [Batch(rows if i == 0 else (), watermark) for i, watermark in enumerate(of_run)]
        return batches

    def _watermarks(self, stream: str) -> list[int]:
        offsets = self.folder / "checkpoints" / stream / "offsets"
        files = sorted(
            (file for file in offsets.iterdir() if file.name.isdigit()), key=lambda file: int(file.name)
        )
        return [json.loads(file.read_text().split("\n")[1])["batchWatermarkMs"] for file in files]

    def _ingest(self, stream: Stream) -> None:
        target = SimpleNamespace(binding=lambda feed: FolderBinding(self.landing / feed))
        feed = feed_of(stream)
        records = connector_of(feed).open(feed, SourceContext(self.spark, target), "records")
        self._append(stream(records), stream.name.stream)

    def _inputs(self, stream: Stream) -> "list[DataFrame]":
        inputs = []
        for name, source in stream.sources.items():
            upstream = source.upstream.stream
            if upstream == "campaigns":
                inputs.append(self._campaigns())
                continue
            table = str(self.folder / upstream)
            schema = self.spark.read.parquet(table).schema
            rows = self.spark.readStream.name(name).schema(schema).parquet(table)
            if feed_of(ads.ads[upstream]):
                rows = _good(rows)
            if source.watermark is not None:
                rows = rows.withWatermark(
                    source.watermark.column, f"{source.watermark.delay.seconds} seconds"
                )
            inputs.append(rows)
        return inputs

    def _campaigns(self) -> "DataFrame":
        changes = _good(self.spark.read.parquet(str(self.folder / "campaigns"))).distinct()
        following = Window.partitionBy("ad_id").orderBy("seq")
        return (
            changes.withColumn("__START_AT", F.col("changed_at"))
            .withColumn("__END_AT", F.lead("changed_at").over(following))
            .where("op = 'upsert'")
        )

    def _append(self, rows: "DataFrame", table: str) -> None:
        self._finish(rows.writeStream.format("parquet").option("path", str(self.folder / table)), table)

    def _finish(self, writer: "DataStreamWriter", table: str) -> None:
        checkpoint = str(self.folder / "checkpoints" / table)
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()

    def _update_totals(self, rows: "DataFrame", _: int) -> None:
        self._totals |= {row["campaign_id"]: tuple(row) for row in rows.collect()}


def _good(records: "DataFrame") -> "DataFrame":
    return records.where(F.size(VIOLATED) == 0).drop(RAW, ORIGIN, VIOLATED)


def _bad(records: "DataFrame") -> "DataFrame":
    return records.where(F.size(VIOLATED) > 0)


def as_table(rows: "DataFrame", columns: Sequence[str]) -> Table:
    """Return rows in the form of the oracle: columns in order, times as microseconds, dates as strings."""
    plain = []
    for name in columns:
        match rows.schema[name].dataType:
            case TimestampType():
                plain.append(F.unix_micros(name))
            case DateType():
                plain.append(F.col(name).cast("string"))
            case _:
                plain.append(F.col(name))
    collected = rows.select(*plain).collect()
    return Counter(tuple(tuple(v) if isinstance(v, list) else v for v in row) for row in collected)

"""What a user writes for the rows whose tests need a declaration, a command or a setting, and not a whole stream.

The name of a function begins with the id of its row, and the row's test uses what the function returns. The gallery
shows the docstring and the code behind it; a returned string is a command, settings or SQL. `ERRORS` has the messages
about declarations that are refused, here and in the tests, by the name of the function.
"""

import json
from pathlib import Path

from tidemill import (
    BatchSink,
    ConsoleSink,
    DeltaAppend,
    DeltaSource,
    FileSource,
    ForeachSink,
    KafkaSource,
    MemorySink,
    RateSource,
    SparkSource,
)

ROW = "id STRING, n BIGINT"
ERRORS = {
    "src_kafka_rate_min": (
        "KafkaSource: minOffsetsPerTrigger can leave a tail unread in an available-now run. Let the schedule decide "
        "when a run is worth it, and leave the option out."
    ),
    "src_socket": (
        "SparkSource: format is 'socket', and a run ends when it has read what is there: it keeps nothing that a "
        "repeated batch could read again. Write what arrives into files or a topic."
    ),
    "src_rate": (
        "SparkSource: format is 'rate', and a run ends when it has read what is there: it makes rows as time passes. "
        "Use RateSource."
    ),
    "op_unsupported": (
        "air/op_unsupported: Spark cannot stream an aggregation of distinct values: its state would have to keep every "
        "value of every group. No data was lost. Fix: use F.approx_count_distinct; or deduplicate in a stream of its "
        "own, with dropDuplicates, and aggregate in a stream that reads its table."
    ),
    "mode_matrix": (
        "air/mode_matrix: Spark cannot stream an aggregation without a watermark in append mode: a group is written "
        "once, and nothing says when it is complete. No data was lost. Fix: declare with_watermark(column, delay) on "
        "the source, and group by F.window of that column or by the column itself (on a warm server, withColumn loses "
        "it: make the window in groupBy or select); or use QueryOptions(output_mode='update') with "
        "DeltaMerge(keys=[...])."
    ),
    "sink_console_refused": (
        "ConsoleSink keeps no rows after the run, so it is for debugging only: give debug=True, or use a sink that "
        "keeps the rows, such as DeltaAppend()."
    ),
    "sink_memory_refused": (
        "MemorySink keeps no rows after the run, so it is for debugging only: give debug=True, or use a sink that "
        "keeps the rows, such as DeltaAppend()."
    ),
}


def src_file_formats(folder):
    """Read files of a folder or of a glob. `text` and `binaryFile` have columns of their own."""
    return {
        "json": FileSource(path=folder, format="json", schema=ROW),
        "csv": FileSource(path=f"{folder}/day=*", format="csv", schema=ROW),
        "text": FileSource(path=folder, format="text"),
        "xml": FileSource(path=folder, format="xml", schema=ROW, options={"rowTag": "row"}),
        "parquet": FileSource(path=folder, format="parquet", schema=ROW),
        "orc": FileSource(path=folder, format="orc", schema=ROW),
        "avro": FileSource(path=folder, format="avro", schema=ROW),
        "binaryFile": FileSource(path=folder, format="binaryFile"),
        "infer": FileSource(path=folder, format="parquet", schema="infer"),
    }


def src_file_rate(folder):
    """Read at most three files per batch."""
    return FileSource(path=folder, format="json", schema=ROW, max_files_per_batch=3)


def src_file_rate_bytes(folder):
    """Read files of at most 40 bytes together per batch."""
    return FileSource(path=folder, format="json", schema=ROW, max_bytes_per_batch=40)


def src_file_order(folder):
    """Read the oldest file first, one per batch."""
    return FileSource(path=folder, format="json", schema=ROW, max_files_per_batch=1)


def src_file_order_latest_first(folder):
    """Read the newest file of each run first."""
    return FileSource(
        path=folder, format="json", schema=ROW, max_files_per_batch=1, options={"latestFirst": "true"}
    )


def src_file_name(folder):
    """Read a file only if no file of the same name was read from another folder."""
    return FileSource(path=f"{folder}/*", format="json", schema=ROW, options={"fileNameOnly": "true"})


def src_file_age(folder):
    """Leave out files that are more than a day older than the newest one."""
    return FileSource(path=folder, format="json", schema=ROW, options={"maxFileAge": "1d"})


def src_file_clean(folder, archive):
    """Move files that were read into another folder."""
    return FileSource(
        path=folder,
        format="json",
        schema=ROW,
        options={"cleanSource": "archive", "sourceArchiveDir": archive},
    )


def src_file_clean_delete(folder):
    """Delete files that were read."""
    return FileSource(path=folder, format="json", schema=ROW, options={"cleanSource": "delete"})


def src_file_part(folder):
    """Read a column from the names of the folders, such as `day=2026-01-01`."""
    return FileSource(path=folder, format="json", schema="id STRING, n BIGINT, day DATE")


def src_kafka_sub(topic):
    """Read topics by their names, by a pattern, or only some partitions."""
    return {
        "subscribe": KafkaSource(subscribe=topic),
        "subscribe_pattern": KafkaSource(subscribe_pattern=f"{topic[:-1]}."),
        "assign": KafkaSource(assign={topic: (0, 1)}),
    }


def src_kafka_start(topic):
    """Choose where the first run starts: at an offset per partition (-2 is the earliest), or at a time."""
    return {
        "earliest": KafkaSource(subscribe=topic),
        "latest": KafkaSource(subscribe=topic, starting_offsets="latest"),
        "by_partition": KafkaSource(subscribe=topic, starting_offsets={topic: {0: 1, 1: -2}}),
        "by_time": KafkaSource(subscribe=topic, options={"startingTimestamp": "1"}),
    }


def src_kafka_rate(topic):
    """Read at most two messages per batch, by three tasks."""
    return KafkaSource(subscribe=topic, max_records_per_batch=2, options={"minPartitions": "3"})


def src_kafka_rate_min(topic):
    """Refused: a run reads everything that waits."""
    return KafkaSource(subscribe=topic, options={"minOffsetsPerTrigger": "3"})


def src_kafka_newpart(topic):
    """Each run reads the partitions that the topic has by then, new ones from their start."""
    return KafkaSource(subscribe=topic)


def src_delta(table):
    """Read the commits of a table: all, those from a version or a time on, appends only, or each change as a row."""
    return {
        "everything": DeltaSource(path=table),
        "later": DeltaSource(path=table, options={"startingVersion": "1"}),
        "newest": DeltaSource(path=table, options={"startingVersion": "latest"}),
        "since": DeltaSource(path=table, options={"startingTimestamp": "2026-01-01"}),
        "kept": DeltaSource(path=table, options={"skipChangeCommits": "true"}),
        "kept_but_updates": DeltaSource(path=table, options={"ignoreDeletes": "true"}),
        "changes": DeltaSource(path=table, mode="changes"),
    }


def src_socket():
    """Refused: a run would never end."""
    return SparkSource(format="socket")


def src_rate():
    """Refused: a run would never end."""
    return SparkSource(format="rate")


def src_rate_mb():
    """Generate four rows per batch."""
    return RateSource(rows_per_batch=4)


def sink_delta():
    """Choose the layout of a table."""
    return {
        "plain": DeltaAppend(),
        "partitioned": DeltaAppend(partition_by=["user"]),
        "clustered": DeltaAppend(cluster_by=["user"]),
    }


def sink_foreach(path):
    """Write a class that opens, processes and closes the rows of each partition of a batch."""

    class Lines:
        def open(self, partition_id, batch_id):
            self.batch_id, self.rows = batch_id, []
            return True

        def process(self, row):
            self.rows.append([row.user, row.n])

        def close(self, error):
            with Path(path).open("a") as file:
                file.write(f"{json.dumps([self.batch_id, str(error), self.rows])}\n")

    return ForeachSink(Lines)


def sink_batch(folder):
    """Write a function, which gets the rows of each batch, the very ones that the table gets."""

    def write_files(rows, batch):
        rows.write.mode("overwrite").json(f"{folder}/{batch.batch_id}")

    return [BatchSink(write_files, name="files"), DeltaAppend()]


def sink_console():
    """Print the rows of each batch on stderr."""
    return ConsoleSink(debug=True)


def sink_console_refused():
    """Refused without `debug=True`."""
    return ConsoleSink()


def sink_memory():
    """Keep the rows in memory; `rows()` returns them."""
    return MemorySink("seen", debug=True)


def sink_memory_refused():
    """Refused without `debug=True`."""
    return MemorySink("seen")


def trig_now():
    """Read all that is there, in batches within the limits of the sources, and end."""
    return "tidemill run shop/copied"


def trig_time():
    """Start a batch every two seconds, for 25 seconds."""
    return "tidemill run shop/copied --follow=2s --for 25s"


def trig_default():
    """Start a batch when the one before has ended, for 25 seconds."""
    return "tidemill run shop/copied --follow --for 25s"


def trig_once():
    """Read all that is there in one batch, without the limits of the sources."""
    return "tidemill run shop/copied --once"


def trig_continuous():
    """Process each message when it arrives, and save the progress every second."""
    return "tidemill run shop/doubled --follow=1s --mode continuous"


def trig_realtime():
    """Process each message when it arrives, in batches of five seconds."""
    return "tidemill run shop/doubled --follow=5s --mode real-time"


def async_progress():
    """Write offsets and commits in the background. The next `tidemill run` is an ordinary one again."""
    return "tidemill run shop/doubled --follow --mode async"


def mon_progress():
    """Read the ledger, which has one line per batch, with any engine."""
    return """\
SELECT batch_id, rows_read, reconstructed, milliseconds.triggerExecution
FROM json.`/srv/shop/lake/ledger`
WHERE pipeline = 'shop' AND stream = 'copied'
ORDER BY batch_id"""


def mon_listener():
    """Name the class of a listener in the settings of a target. A listener may read its own settings from the conf."""
    return """\
[targets.dev.spark.conf]
"spark.jars" = "/srv/shop/monitored.jar"
"spark.sql.streaming.streamingQueryListeners" = "monitored.Slow"
"spark.monitored.events" = "/srv/shop/events\""""


def mon_metrics():
    """Report each query to a sink of Spark's metrics, here as CSV files."""
    return """\
[targets.dev.spark.conf]
"spark.sql.streaming.metricsEnabled" = "true"
"spark.metrics.conf.*.sink.csv.class" = "org.apache.spark.metrics.sink.CsvSink"
"spark.metrics.conf.*.sink.csv.period" = "1"
"spark.metrics.conf.*.sink.csv.unit" = "seconds"
"spark.metrics.conf.*.sink.csv.directory" = "/srv/shop/metrics\""""


def rec_change():
    """After a run of the first function, `tidemill plan` has these verdicts on each of them."""
    return {
        "nothing": lambda views: views.groupBy("user").count(),
        "safe": lambda views: views.groupBy("user").count().where("count > 0"),
        "mixes_state": lambda views: views.where("n > 1").groupBy("user").count(),
        "refused_by_spark": lambda views: views.groupBy("user", "n").count(),
    }


def rec_change_plan():
    """Compare the state of the new code with that of the last run."""
    return "tidemill plan shop/rec_change"

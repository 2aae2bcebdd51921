"""The public names that every pipeline is made of."""

from tidemill import functions
from tidemill.connectors.delta.source import DeltaSource
from tidemill.connectors.feed import Feed
from tidemill.connectors.files.source import FileSource
from tidemill.connectors.formats.csv import Csv
from tidemill.connectors.formats.json import Json
from tidemill.connectors.formats.raw import Raw
from tidemill.connectors.jdbc.source import JdbcSource
from tidemill.connectors.kafka.source import KafkaSource
from tidemill.connectors.rate.source import RateSource
from tidemill.connectors.spark.source import SparkSource
from tidemill.definitions.backfill_by import BackfillBy
from tidemill.definitions.bounds import Checks, StateBounds
from tidemill.definitions.expectations import Expect
from tidemill.definitions.options import QueryOptions
from tidemill.definitions.pipeline import Pipeline
from tidemill.definitions.run_when import RunWhen
from tidemill.definitions.sink import BatchIdentity
from tidemill.definitions.stream import Stream
from tidemill.sinks.batch_sink import BatchSink
from tidemill.sinks.debug_sinks import ConsoleSink, MemorySink
from tidemill.sinks.delta_append import DeltaAppend
from tidemill.sinks.delta_merge import DeltaMerge
from tidemill.sinks.delta_overwrite import DeltaOverwrite
from tidemill.sinks.file_sink import FileSink
from tidemill.sinks.foreach_sink import ForeachSink
from tidemill.sinks.kafka_sink import KafkaSink
from tidemill.sinks.postgres.sink import JdbcSink

__all__ = [
    "BackfillBy",
    "BatchIdentity",
    "BatchSink",
    "Checks",
    "ConsoleSink",
    "Csv",
    "DeltaAppend",
    "DeltaMerge",
    "DeltaOverwrite",
    "DeltaSource",
    "Expect",
    "Feed",
    "FileSink",
    "FileSource",
    "ForeachSink",
    "JdbcSink",
    "JdbcSource",
    "Json",
    "KafkaSink",
    "KafkaSource",
    "MemorySink",
    "Pipeline",
    "QueryOptions",
    "RateSource",
    "Raw",
    "RunWhen",
    "SparkSource",
    "StateBounds",
    "Stream",
    "functions",
]

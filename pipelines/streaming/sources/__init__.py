"""Sources: definitions as plain data, and how each becomes a streaming DataFrame."""

from pipelines.streaming.sources.delta import DeltaSource, StreamReading
from pipelines.streaming.sources.feed import Feed
from pipelines.streaming.sources.files import FileSource
from pipelines.streaming.sources.kafka import KafkaSource
from pipelines.streaming.sources.parser import Parser, from_csv, from_json, raw
from pipelines.streaming.sources.source import Source, Watermark

__all__ = [
    "DeltaSource",
    "Feed",
    "FileSource",
    "KafkaSource",
    "Parser",
    "Source",
    "StreamReading",
    "Watermark",
    "from_csv",
    "from_json",
    "raw",
]

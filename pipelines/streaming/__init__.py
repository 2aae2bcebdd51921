"""The public names that every pipeline is made of."""

from pipelines.streaming.backfill_by import BackfillBy
from pipelines.streaming.checks.bounds import Checks, StateBounds
from pipelines.streaming.expectations import Expect
from pipelines.streaming.options import QueryOptions
from pipelines.streaming.pipeline import Pipeline
from pipelines.streaming.run_when import RunWhen
from pipelines.streaming.sinks import DeltaAppend, DeltaMerge, DeltaOverwrite
from pipelines.streaming.sources import (
    DeltaSource,
    Feed,
    FileSource,
    KafkaSource,
    from_csv,
    from_json,
    raw,
)
from pipelines.streaming.stream import Stream

__all__ = [
    "BackfillBy",
    "Checks",
    "DeltaAppend",
    "DeltaMerge",
    "DeltaOverwrite",
    "DeltaSource",
    "Expect",
    "Feed",
    "FileSource",
    "KafkaSource",
    "Pipeline",
    "QueryOptions",
    "RunWhen",
    "StateBounds",
    "Stream",
    "from_csv",
    "from_json",
    "raw",
]

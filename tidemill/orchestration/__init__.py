"""Dagster definitions of pipelines; the only room that imports Dagster."""

from tidemill.connectors.answers import ExternalData
from tidemill.orchestration.assets.assets import (
    StreamsResource,
    pipeline_job,
    streaming_assets,
    streaming_resources,
)
from tidemill.orchestration.assets.translator import (
    StreamData,
    StreamTranslator,
    external_assets,
    stream_specs,
)
from tidemill.orchestration.build import build_definitions
from tidemill.orchestration.spark_resource import SparkResource

__all__ = [
    "ExternalData",
    "SparkResource",
    "StreamData",
    "StreamTranslator",
    "StreamsResource",
    "build_definitions",
    "external_assets",
    "pipeline_job",
    "stream_specs",
    "streaming_assets",
    "streaming_resources",
]

"""What a stream writes: definitions as plain data, and how one micro-batch reaches its table once."""

from pipelines.streaming.sinks.delta import DeltaAppend
from pipelines.streaming.sinks.merge import DeltaMerge
from pipelines.streaming.sinks.overwrite import DeltaOverwrite
from pipelines.streaming.sinks.sink import Sink

__all__ = ["DeltaAppend", "DeltaMerge", "DeltaOverwrite", "Sink"]

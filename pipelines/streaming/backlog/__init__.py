"""The backlog of a source: the data beyond a checkpoint's offset, counted without a JVM."""

from pipelines.streaming.backlog.amount import amount_of, is_little
from pipelines.streaming.backlog.count import Backlog, Unit
from pipelines.streaming.backlog.sources import backlog_of

__all__ = ["Backlog", "Unit", "amount_of", "backlog_of", "is_little"]

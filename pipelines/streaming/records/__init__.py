"""Everything durable about a stream besides its table and its checkpoint."""

from pipelines.streaming.records.batch import BatchRecord, Late
from pipelines.streaming.records.lake import Lake
from pipelines.streaming.records.stream_records import SinkTable, Snapshot, StreamRecords, transaction_app_id

__all__ = ["BatchRecord", "Lake", "Late", "SinkTable", "Snapshot", "StreamRecords", "transaction_app_id"]

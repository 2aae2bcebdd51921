"""Generate ad events in known amounts, from an endless sequence, as files or as Kafka messages."""

from pipelines.ads.generate.amounts import Amounts, FeedAmounts
from pipelines.ads.generate.arrivals import arrivals
from pipelines.ads.generate.landing import generate
from pipelines.ads.generate.records import Kind, Record
from pipelines.ads.generate.topics import produce

__all__ = ["Amounts", "FeedAmounts", "Kind", "Record", "arrivals", "generate", "produce"]

"""Ad events to try the pipeline with: an endless sequence in known amounts, as files or in Kafka."""

from pipelines.ads.generate.amounts import Amounts, FeedAmounts
from pipelines.ads.generate.arrivals import arrivals
from pipelines.ads.generate.landing import generate
from pipelines.ads.generate.records import Kind, Record
from pipelines.ads.generate.topics import produce

__all__ = ["Amounts", "FeedAmounts", "Kind", "Record", "arrivals", "generate", "produce"]

"""Generate ad events in known amounts, from an endless sequence, as files or as Kafka messages."""

from pipelines.ads.generate.amounts import Amounts, FeedAmounts
from pipelines.ads.generate.arrivals import arrivals
from pipelines.ads.generate.landing import generate
from pipelines.ads.generate.records import FEEDS, Kind, Record
from pipelines.ads.generate.topics import ALERTS_TOPIC, produce

__all__ = [
    "ALERTS_TOPIC",
    "FEEDS",
    "Amounts",
    "FeedAmounts",
    "Kind",
    "Record",
    "arrivals",
    "generate",
    "produce",
]

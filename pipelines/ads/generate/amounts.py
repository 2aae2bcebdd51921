"""The number of records of each kind in a call."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.ads.generate.records import FEEDS, Kind, Record


@dataclass(frozen=True, slots=True)
class FeedAmounts:
    """The number of records of each kind in a feed.

    Attributes:
        first: Impressions, clicks or changes of campaigns that arrive for the first time.
        duplicate: Unchanged copies of earlier records.
        unparsable: Records with invalid JSON, or with a value of the wrong type.
        missing_id: Records without one of their ids.
        negative_cost: Impressions with a negative cost.
        late: Impressions with new ids that arrive days after their event time.
    """

    first: int = 0
    duplicate: int = 0
    unparsable: int = 0
    missing_id: int = 0
    negative_cost: int = 0
    late: int = 0

    @property
    def quarantined(self) -> int:
        """The records that the pipeline quarantines."""
        return self.unparsable + self.missing_id + self.negative_cost

    @property
    def records(self) -> int:
        """All records, including invalid ones."""
        return self.first + self.duplicate + self.late + self.quarantined


@dataclass(frozen=True, slots=True)
class Amounts:
    """The records of a call.

    Attributes:
        seed: The seed of the sequence.
        start: The first index.
        events: The number of indices: one record each, whether valid, duplicate or invalid.
        feeds: Amounts by feed, including records that are not part of the sequence: the campaigns at the
            beginning with `start` 0, and the late impressions with a later one.
    """

    seed: int
    start: int
    events: int
    feeds: Mapping[str, FeedAmounts]

    @property
    def next_start(self) -> int:
        """The first index of the next call."""
        return self.start + self.events

    @property
    def records(self) -> int:
        """The number of records in all feeds."""
        return sum(feed.records for feed in self.feeds.values())


class Tally:
    """A counter of generated records."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Kind]] = Counter()

    def add(self, record: Record) -> None:
        """Count a record."""
        self._counts[record.feed, record.kind] += 1

    def amounts(self, *, seed: int, start: int, events: int) -> Amounts:
        """Return the counts so far."""
        feeds = {
            feed: FeedAmounts(**{kind.value: self._counts[feed, kind] for kind in Kind}) for feed in FEEDS
        }
        return Amounts(seed, start, events, feeds)

"""How much of what a call brought."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.ads.generate.records import FEEDS, Kind, Record


@dataclass(frozen=True, slots=True)
class FeedAmounts:
    """How many records of each kind a feed got.

    Attributes:
        first: Impressions, clicks or changes of campaigns, for the first time.
        duplicate: Records that came before, once more and unchanged.
        unparsable: Records without JSON, or with a value of the wrong type.
        missing_id: Records without one of their ids.
        negative_cost: Impressions that cost less than nothing.
        late: Impressions of new ids that come days after their time.
    """

    first: int = 0
    duplicate: int = 0
    unparsable: int = 0
    missing_id: int = 0
    negative_cost: int = 0
    late: int = 0

    @property
    def quarantined(self) -> int:
        """Records that the pipeline puts aside."""
        return self.unparsable + self.missing_id + self.negative_cost

    @property
    def records(self) -> int:
        """All records, bad ones included."""
        return self.first + self.duplicate + self.late + self.quarantined


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a call brought.

    Attributes:
        seed: The seed of the sequence.
        start: The first index.
        events: The number of indices: one record each, whether good, a duplicate or bad.
        feeds: Amounts by feed. They include what is not part of the sequence: the campaigns that run at
            the beginning, with `start` 0, and the late impressions, with a later one.
    """

    seed: int
    start: int
    events: int
    feeds: Mapping[str, FeedAmounts]

    @property
    def next_start(self) -> int:
        """Where the next call continues."""
        return self.start + self.events

    @property
    def records(self) -> int:
        """All records of all feeds."""
        return sum(feed.records for feed in self.feeds.values())


class Tally:
    """Counts records on their way out."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Kind]] = Counter()

    def add(self, record: Record) -> None:
        """Counts one more."""
        self._counts[record.feed, record.kind] += 1

    def amounts(self, *, seed: int, start: int, events: int) -> Amounts:
        """What was counted so far."""
        feeds = {
            feed: FeedAmounts(**{kind.value: self._counts[feed, kind] for kind in Kind}) for feed in FEEDS
        }
        return Amounts(seed, start, events, feeds)

"""Observations of feeds: their newest data, and how far the streams that read them are behind."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from dagster import AssetKey, AssetObservation

from tidemill.connectors.amount import amount_of
from tidemill.text.digest import digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidemill.connectors.backlog import Backlog
    from tidemill.definitions.source import Source
    from tidemill.run.decide.tick import Decision

DATA_VERSION = "dagster/data_version"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedState:
    """A feed as a tick found it.

    Attributes:
        reader: The stream that reads it.
        backlog: What that stream has not read.
    """

    source: "Source"
    reader: str
    backlog: "Backlog"

    @property
    def feed(self) -> str:
        """The feed's name."""
        return str(self.source.feed_name)

    @property
    def version(self) -> str:
        """The feed's data version: its end offsets, or its files."""
        return self.backlog.head

    def observation(self, key: AssetKey, now: datetime) -> AssetObservation:
        """Return the observation of the feed.

        Args:
            key: The feed's asset key.
            now: The current time, which the lag is measured against.
        """
        amount = amount_of([self.backlog])
        lag = None if amount.oldest_at is None else max(0.0, (now - amount.oldest_at).total_seconds())
        metadata: dict[str, str | int | float] = {
            "tidemill/head": self.version,
            "tidemill/reader": self.reader,
            "tidemill/lag_seconds": round(lag or 0.0, 1),
        }
        if self.backlog.unit == "messages":
            metadata["tidemill/lag_rows"] = self.backlog.count
        else:
            metadata["tidemill/lag_files"] = self.backlog.count
        return AssetObservation(key, metadata=metadata, tags={DATA_VERSION: digest(self.version)})


def feed_states(decisions: "Iterable[Decision]") -> list[FeedState]:
    """Return the state of every feed whose newest data a tick knows; a feed of several streams once."""
    states: dict[str, FeedState] = {}
    for decision in decisions:
        for name, backlog in decision.backlog.items():
            source = decision.stream.sources[name]
            if source.feed_name is not None and backlog.head:
                states[source.feed_name] = FeedState(
                    source=source, reader=str(decision.stream.name), backlog=backlog
                )
    return list(states.values())

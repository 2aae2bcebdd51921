"""What the checks of one stream are evaluated on: its records at one moment, its declaration, and the time."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tidemill.records.batch import BatchRecord
from tidemill.records.stream_records import Snapshot
from tidemill.run.decide.decision import RunDecision, decide

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from tidemill.definitions.bounds import Checks
    from tidemill.definitions.stream import Stream
    from tidemill.records.check_state import Checked
    from tidemill.run.execute.results import StreamResult
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName


@dataclass(frozen=True, kw_only=True)
class CheckContext:
    """What the checks of one stream know.

    Attributes:
        result: What a run has just done to the stream; None without a run.
        before: What the checks before have recorded; None where there were none.
        streams: All streams of the target by name, to follow an event to its origin.
    """

    stream: "Stream"
    target: "Target"
    snapshot: Snapshot
    now: "datetime"
    result: "StreamResult | None" = None
    before: "Checked | None" = None
    streams: "Mapping[StreamName, Stream]" = field(default_factory=dict)

    @property
    def bounds(self) -> "Checks":
        """The declared bounds."""
        return self.stream.checks

    @cached_property
    def plan(self) -> RunDecision:
        """What the next run would do; raises what `decide` raises."""
        return decide(self.stream, self.target, self.snapshot)

    @cached_property
    def lines(self) -> tuple[BatchRecord, ...]:
        """The ledger's lines of the newest run that committed a batch, oldest batch first.

        A run that found nothing to do leaves the verdict of the run before as it is.
        """
        if self.result is not None and self.result.batches:
            return self.result.batches
        if self.snapshot.manifest is None:
            return ()
        ledger = self.snapshot.records.ledger
        last_run = self.snapshot.manifest.last_run
        newest = ledger.newest_line(None if last_run is None else last_run.run_id)
        lines = () if newest is None else ledger.lines(newest.run_id)
        own = (line for line in lines if line.generation == self.snapshot.generation)
        return tuple(sorted(own, key=lambda line: line.batch_id))

    @property
    def now_ms(self) -> int:
        """The current time, milliseconds since the epoch."""
        return int(self.now.timestamp() * 1000)

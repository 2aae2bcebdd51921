"""Step 1 of a run: what a run would do to a stream, decided without a JVM and without Dagster.

The decision is a value that can be printed and tested. It may err only towards running: a start that finds
nothing costs a moment, and a start that is left out costs no more than time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidemill.catalog.sources import located
from tidemill.connectors.backlog import Backlog
from tidemill.connectors.connector import Reading
from tidemill.connectors.registry import backlog_of
from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.options import pinned_differences
from tidemill.plans.operators import have_timers
from tidemill.records.manifest import Manifest, first_manifest
from tidemill.records.stream_records import Snapshot, StreamRecords
from tidemill.run.decide import sources as source_records
from tidemill.run.decide.preconditions import check
from tidemill.run.decide.watermark import watermark_to_continue
from tidemill.run.tables.versions import check_read_commits
from tidemill.target.target import Target
from tidemill.text.durations import iso_of

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDecision:
    """What a run would do to one stream.

    Attributes:
        manifest: The manifest to continue; a new one for a stream that has never run.
        backlog: The backlog by the names of the streaming sources.
        has_timers: Whether the state may have timers that fire by the clock; only Spark can read which.
    """

    stream: "Stream"
    snapshot: Snapshot
    manifest: Manifest
    sources: Mapping[str, SourceRecord] = field(default_factory=dict)
    backlog: Mapping[str, Backlog] = field(default_factory=dict)
    has_timers: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the stream's author may not expect, one sentence each."""
        pinned = dict(self.manifest.active.confs)
        if self.snapshot.tail.latest_offset is not None:
            pinned |= self.snapshot.tail.latest_offset.conf
        differences = pinned_differences(pinned, self.stream.query.declared_confs)
        skipped = (
            f"its source {name!r} {backlog.warning}"
            for name, backlog in self.backlog.items()
            if backlog.warning
        )
        waiting = (
            f"its source {name!r} infers its columns, and has no file yet: the stream stays idle until one arrives."
            for name in self._without_columns
        )
        return (*differences, *skipped, *waiting, *self.manifest.active.warnings)

    @property
    def _without_columns(self) -> list[str]:
        """The sources that infer their columns and have nothing to infer them from."""
        return [
            name
            for name, backlog in self.backlog.items()
            if self.stream.sources[name].infers_schema
            and self.sources[name].schema is None
            and backlog.is_known
            and not backlog
        ]

    @property
    def waits_for_columns(self) -> bool:
        """Whether a source that infers its columns has nothing yet to infer them from."""
        return bool(self._without_columns)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.reasons

    @property
    def counted(self) -> dict[str, Backlog]:
        """The sources with unread data, as far as it can be counted."""
        return {name: backlog for name, backlog in self.backlog.items() if backlog and backlog.is_known}

    @property
    def uncounted(self) -> dict[str, Backlog]:
        """The sources whose backlog only a run can find out."""
        return {name: backlog for name, backlog in self.backlog.items() if not backlog.is_known}

    @property
    def next_poll(self) -> datetime | None:
        """When a run polls the sources that cannot be counted; None where there is none, or at once."""
        return self.stream.run_when.next_poll(self._last_ended_at) if self.uncounted else None

    @property
    def next_timers(self) -> datetime | None:
        """From when on a run fires the timers that are due; None where there are none, or at once."""
        return self.stream.run_when.next_timers(self._last_ended_at) if self.has_timers else None

    @property
    def _last_ended_at(self) -> datetime | None:
        last_run = None if self.snapshot.manifest is None else self.snapshot.manifest.last_run
        return None if last_run is None else datetime.fromisoformat(last_run.ended_at)

    @property
    def timers_are_due(self) -> bool:
        """Whether it is time to fire timers."""
        return self.has_timers and (self.next_timers is None or self.next_timers <= datetime.now(UTC))

    @property
    def has_events_to_read_again(self) -> bool:
        """Whether a killed run has not recorded the newest events of several inputs, which hold the watermark."""
        return self.snapshot.ledger_is_behind and len(self.manifest.active.watermarks or ()) > 1

    @property
    def needs_query(self) -> bool:
        """Whether Spark is needed; lines that the ledger misses are written without it."""
        return bool(self._query_reasons)

    @property
    def is_urgent(self) -> bool:
        """Whether a run is due whatever waits: a first run, a repair, or missing ledger lines."""
        if self.waits_for_columns:
            return False
        start = self.snapshot.tail.next_start.kind in ("repeat_batch", "no_data_batch")
        return (
            start
            or self.snapshot.query_id is None
            or self.snapshot.ledger_is_behind
            or self._watermark_to_continue is not None
            or self.timers_are_due
        )

    @property
    def _watermark_to_continue(self) -> int | None:
        waiting = [*self.counted, *self.uncounted]
        return watermark_to_continue(self.stream, self.manifest.active, self.snapshot.tail, waiting)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons to run, in a few words each; empty when the stream is idle."""
        behind = ("the ledger misses lines",) if self.snapshot.ledger_is_behind else ()
        return self._query_reasons + behind

    @property
    def _query_reasons(self) -> tuple[str, ...]:
        if self.waits_for_columns:
            return ()
        reasons = [f"{backlog} in {source}" for source, backlog in self.backlog.items() if backlog]
        if self.snapshot.query_id is None:
            reasons.append("it has never run")  # also without input: its readers need its table
        start = self.snapshot.tail.next_start
        if start.kind == "repeat_batch":
            reasons.append(f"batch {start.batch_id} must be repeated")
        if start.kind == "no_data_batch":
            reasons.append(f"no-data batch {start.batch_id} is pending")
        if (watermark_ms := self._watermark_to_continue) is not None:
            reasons.append(f"the watermark moves to {iso_of(watermark_ms)}")
        if self.has_events_to_read_again:
            reasons.append("the newest events of a batch are read again")
        if self.timers_are_due:
            reasons.append("timers may be due")
        return tuple(reasons)


def decide_run(stream: "Stream", target: Target) -> RunDecision:
    """Decide what a run would do to a stream.

    Raises:
        CheckpointError: The checkpoint is damaged, missing, or not the one that the table was written with.
        TerminalError: A source has another name or another binding than the checkpoint continues.
        TransientError: A source cannot be reached now.
        DataLossError: A source no longer has the data that the checkpoint reads next.
    """
    return decide(stream, target, StreamRecords(target.lake, stream.name).snapshot())


def decide(stream: "Stream", target: Target, snapshot: Snapshot) -> RunDecision:
    """Decide what a run would do to a stream with these records; raise what `decide_run` raises."""
    stream = located(stream, snapshot.sources)
    check(stream, snapshot)
    source_records.check_names(stream, snapshot)
    bound = source_records.bindings(stream, target)
    source_records.check_bindings(stream, target, snapshot, bound)
    recorded = source_records.recorded_sources(snapshot)
    backlog = {
        name: backlog_of(
            source,
            Reading(
                target=target,
                name=name,
                offset=snapshot.tail.planned(name),
                checkpoint=snapshot.folder,
                record=recorded[name],
            ),
        )
        for name, source in source_records.streaming_sources(stream).items()
    }
    check_read_commits(stream, target.lake, recorded)  # after the backlog, which recognizes another table
    return RunDecision(
        stream=stream,
        snapshot=snapshot,
        manifest=snapshot.manifest or first_manifest({}),
        sources=source_records.updated_sources(stream, target, snapshot, bound),
        backlog=backlog,
        has_timers=_has_timers(snapshot),
    )


def _has_timers(snapshot: Snapshot) -> bool:
    manifest = snapshot.manifest
    if manifest is None or not have_timers(manifest.active.operators):
        return False
    last_run = manifest.last_run
    line = snapshot.records.ledger.newest_line(None if last_run is None else last_run.run_id)
    return line is None or line.state_rows != 0

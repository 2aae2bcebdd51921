"""Status: where a stream stands, without starting Spark or Dagster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal

from tidemill.catalog.names import is_in_catalog
from tidemill.connectors.backlog import amount_of
from tidemill.definitions.run_when import Amount
from tidemill.errors import CheckpointError, TidemillError
from tidemill.records.stream_records import Snapshot, StreamRecords
from tidemill.run.decide.decision import decide
from tidemill.run.decide.side_by_side import side_by_side
from tidemill.text.durations import format_duration, parse_duration

if TYPE_CHECKING:
    from tidemill.connectors.backlog import Backlog
    from tidemill.definitions.stream import Stream
    from tidemill.records.registrations import Registration
    from tidemill.run.decide.decision import RunDecision
    from tidemill.target.target import Target

State = Literal["never_run", "idle", "behind", "running", "failed", "corrupt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStatus:
    """A sink that is no table.

    Attributes:
        last_batch: The newest batch that the last check `exactly_once` has seen there; None where it has seen none, as
            in a sink that does not know its batches.
    """

    name: str
    kind: str
    delivery: str
    last_batch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where one stream stands.

    Attributes:
        stream: Its full name.
        state: `corrupt`: its checkpoint, or its table, is not what the next run needs. `failed`: its last run
            failed, or one of its sources cannot be read now. `behind`: the next run has something to do.
        reasons: The reasons for the state, for people.
        backlog: The backlog by source; None where a source could not be read.
        watermark_ms: The watermark of the next batch, milliseconds since the epoch; None without one.
        waiting: How much the backlog is in rows, files and bytes, and how old; None where nothing waits.
        running_batch: The batch that a run is executing now; None where there is none.
        last_batch: The last committed batch.
        last_run_at: When the last run that had something to do ended, ISO-8601 UTC.
        generation: The generation of its checkpoint.
        state_rows: Rows in state after the last batch.
        warnings: What the author of the stream may not expect, one sentence each.
        polls: The sources that only a run can count, and when one does, one sentence each.
        sinks: Its sinks that are no tables.
        catalog: What a catalog said about its tables when a run last asked it, by sink; empty without a catalog.
    """

    stream: str
    state: State
    reasons: Sequence[str] = ()
    backlog: "Mapping[str, Backlog] | None" = None
    watermark_ms: int | None = None
    waiting: Amount | None = None
    running_batch: int | None = None
    last_batch: int | None = None
    last_run_at: str | None = None
    generation: int | None = None
    state_rows: int | None = None
    warnings: Sequence[str] = ()
    polls: Sequence[str] = ()
    sinks: Sequence[SinkStatus] = ()
    catalog: "Mapping[str, Registration]" = field(default_factory=dict)


def statuses_of(streams: "Sequence[Stream]", target: "Target") -> list[Status]:
    """Return the status of each stream, in their order; they are asked side by side."""
    with side_by_side(partial(status_of, target=target), streams) as futures:
        return [future.result() for future in futures]


def status_of(stream: "Stream", target: "Target") -> Status:
    """Return the status of a stream; whatever is wrong with it becomes its state."""
    records = StreamRecords(target.lake, stream.name)
    status = Status(
        stream=str(stream.name),
        state="never_run",
        sinks=_sinks(stream),
        catalog=records.registrations().tables if is_in_catalog(stream, target) else {},
    )
    try:
        snapshot = records.snapshot()
        status = replace(_recorded(status, snapshot), sinks=_sinks(stream, snapshot))
        decision = decide(stream, target, snapshot)
    except TidemillError as error:
        state: State = "never_run" if status.generation is None else "failed"
        if isinstance(error, CheckpointError):
            state = "corrupt"
        status = replace(status, state=state, reasons=[str(error)])
    else:
        waiting = [backlog for backlog in decision.backlog.values() if backlog]
        status = replace(
            status,
            backlog=decision.backlog,
            waiting=amount_of(waiting) if waiting else None,
            warnings=decision.warnings,
            polls=_polls(decision),
        )
        last_run = None if snapshot.manifest is None else snapshot.manifest.last_run
        if last_run is not None and last_run.outcome == "failed":
            status = replace(status, state="failed", reasons=[last_run.error or "its last run failed"])
        elif snapshot.query_id is not None:
            polls_later = decision.next_poll is not None and datetime.now(UTC) < decision.next_poll
            waits = decision.counted or decision.is_urgent or (decision.uncounted and not polls_later)
            status = replace(status, state="behind" if waits else "idle", reasons=decision.reasons)
    holder = records.holder()
    if holder is not None:  # and a checkpoint that is being written may look damaged for a moment
        status = replace(
            status, state="running", reasons=[str(holder)], running_batch=_running_batch(records)
        )
    return status


def _polls(decision: "RunDecision") -> list[str]:
    policy, when = decision.stream.run_when, "each tick of its schedule looks for data"
    if policy.cron is None:
        when = f"a run looks for data {_every(policy.poll_every, decision.next_poll)}"
    polls = [
        f"Source {name!r} cannot be counted: {backlog.detail}; {when}."
        for name, backlog in decision.uncounted.items()
    ]
    if decision.has_timers:
        when = f"a run fires those that are due {_every(policy.timers_every, decision.next_timers)}"
        polls.append(
            f"Its state has timers; {when}{'' if policy.cron is None else ', at a tick of its schedule'}."
        )
    return polls


def _every(length: str | timedelta, next_at: datetime | None) -> str:
    start = "at once" if next_at is None else f"at {next_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"every {format_duration(parse_duration(length, field='every'))}, the next {start}"


def _sinks(stream: "Stream", snapshot: Snapshot | None = None) -> list[SinkStatus]:
    checked = None if snapshot is None or not stream.external_sinks else snapshot.records.checked()
    position = None if checked is None else checked.position
    batches = {} if position is None or snapshot is None or not snapshot.has(position) else position.sinks
    return [
        SinkStatus(name=sink.name, kind=sink.kind, delivery=sink.delivery, last_batch=batches.get(sink.name))
        for sink in stream.external_sinks
    ]


def _running_batch(records: StreamRecords) -> int | None:
    """Return the batch that has offsets and no commit yet."""
    try:
        start = records.snapshot().tail.next_start
    except TidemillError:
        return None
    return start.batch_id if start.kind == "repeat_batch" else None


def _recorded(status: Status, snapshot: Snapshot) -> Status:
    """Add what the manifest, the ledger and the end of the checkpoint record."""
    if snapshot.manifest is None:
        return status
    last_run = snapshot.manifest.last_run
    newest = snapshot.records.ledger.newest_line(None if last_run is None else last_run.run_id)
    commit = snapshot.tail.latest_commit
    return replace(
        status,
        generation=snapshot.generation,
        last_run_at=None if last_run is None else last_run.ended_at,
        last_batch=None if commit is None else commit.batch_id,
        watermark_ms=snapshot.next_watermark_ms,
        state_rows=None if newest is None else newest.state_rows,
    )

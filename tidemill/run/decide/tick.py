"""Which streams a tick of a sensor or a schedule should run, decided without a JVM and without Dagster.

A tick recomputes everything from the state of the world: the backlog, the checkpoint, the lease, and what the
manifest records about the last run. It remembers nothing itself.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Literal

from tidemill.connectors.backlog import Backlog, amount_of
from tidemill.definitions.code_version import code_version
from tidemill.errors import TidemillError
from tidemill.records.stream_records import Snapshot, StreamRecords
from tidemill.run.decide.decision import RunDecision, decide
from tidemill.run.decide.side_by_side import side_by_side
from tidemill.run.decide.waiting import failure_position, pause_after
from tidemill.run.spark.error_translation import translated
from tidemill.text.digest import digest

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.records.manifest import LastRun
    from tidemill.target.target import Target

State = Literal["due", "refused", "waiting", "idle", "busy", "failed", "unreachable"]
# A broker's own time-out is 8 s; a file system that hangs has none. Dagster ends a tick after 60 s.
DEADLINE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a tick decides about one stream.

    Attributes:
        state: `due`: it should run now. `refused`: a run would be refused, and should be started once so that
            the refusal is recorded and reported. `waiting`: its policy waits for more, or for time to pass.
            `idle`: there is nothing to do. `busy`: a run holds its lease. `failed`: its last failure would be
            repeated. `unreachable`: one of its sources does not answer.
        reason: The reason, for people.
        position: A hash of what the decision is based on: the checkpoint's end, the code, and the newest data
            of the sources. A run that changes nothing leaves it as it is.
        backlog: The backlog by source, where it is known.
    """

    stream: "Stream"
    state: State
    reason: str
    position: str = ""
    backlog: Mapping[str, Backlog] = field(default_factory=dict)


def decisions(
    streams: "Sequence[Stream]", target: "Target", *, now: datetime, conditions: bool = True
) -> list[Decision]:
    """Decide about some streams side by side.

    A source that does not answer costs its own time-out; its stream is `unreachable`, and the others are decided.

    Args:
        now: The current time, with a time zone.
        conditions: Whether the streams' policies apply; without them any unread data is due, as it is for a
            schedule.
    """
    decide_one = partial(decision, target=target, now=now, conditions=conditions)
    with side_by_side(decide_one, streams) as futures:
        wait(futures, timeout=DEADLINE_SECONDS)
        return [
            future.result()
            if future.done()
            else Decision(
                stream=stream,
                state="unreachable",
                reason=f"its sources or its lake did not answer within {DEADLINE_SECONDS:.0f} s",
            )
            for stream, future in zip(streams, futures, strict=True)
        ]


def decision(stream: "Stream", target: "Target", *, now: datetime, conditions: bool = True) -> Decision:
    """Decide about one stream; whatever is wrong with it becomes the decision."""
    records = StreamRecords(target.lake, stream.name)
    try:
        holder = records.holder()
        if holder is not None:
            return Decision(stream=stream, state="busy", reason=f"{holder} holds its lease")
        snapshot = records.snapshot()
        plan = decide(stream, target, snapshot)
        return _planned(plan, now=now, conditions=conditions)
    except Exception as error:  # noqa: BLE001 - one broken stream must not stop the others
        failure = translated(error, stream.name)
        if failure.transient:
            return Decision(stream=stream, state="unreachable", reason=failure.what)
        return Decision(
            stream=stream, state="refused", reason=str(failure), position=_refused(stream, records, failure)
        )


def _planned(plan: RunDecision, *, now: datetime, conditions: bool) -> Decision:
    stream, snapshot = plan.stream, plan.snapshot
    position = _position(plan)

    def decided(state: State, reason: str) -> Decision:
        return Decision(stream=stream, state=state, reason=reason, position=position, backlog=plan.backlog)

    if plan.idle:
        return decided("idle", "nothing new")
    last_run = None if snapshot.manifest is None else snapshot.manifest.last_run
    if last_run is not None and last_run.outcome == "failed":
        repeated = _repeated_failure(stream, snapshot, last_run, now)
        if repeated:
            return decided("failed", repeated)
    ended_at = None if last_run is None else datetime.fromisoformat(last_run.ended_at)
    if conditions and (pause := stream.run_when.pause(ended_at, now=now)):
        return decided(
            "waiting", f"its last run ended less than {stream.run_when.at_most_every} ago ({pause} left)"
        )
    if not conditions or plan.is_urgent:
        return decided("due", ", ".join(plan.reasons))
    return decided(*_by_policy(plan, now))


def _by_policy(plan: RunDecision, now: datetime) -> tuple[State, str]:
    """Return whether the policy of a stream starts a run, and why: by what waits, or by a poll."""
    policy, waits = plan.stream.run_when, []
    if plan.counted:
        due = policy.due(amount_of(plan.counted.values()), now=now)
        if due.now:
            return "due", due.reason if policy.has_conditions else ", ".join(plan.reasons)
        waits.append(due.reason)
    if plan.next_poll is not None and now < plan.next_poll:
        names = ", ".join(plan.uncounted)
        waits.append(f"{names} cannot be counted, and the next poll is at {plan.next_poll:%H:%M:%S} UTC")
    elif plan.uncounted:
        return "due", f"poll of {', '.join(plan.uncounted)}"
    return "waiting", "; ".join(waits)


def _repeated_failure(stream: "Stream", snapshot: Snapshot, last_run: "LastRun", now: datetime) -> str:
    """Return why a stream that failed does not run again now; an empty string if it is."""
    if last_run.transient:
        left = datetime.fromisoformat(last_run.ended_at) + pause_after(last_run.failures) - now
        return f"retry {last_run.failures} in {left}: {last_run.error}" if left.total_seconds() > 0 else ""
    if snapshot.manifest is None:
        return ""
    if failure_position(stream, snapshot.manifest, snapshot) != last_run.position:
        return ""
    return f"failed, and would fail again until its code or its checkpoint changes: {last_run.error}"


def _position(plan: RunDecision) -> str:
    manifest = plan.snapshot.manifest or plan.manifest
    heads = {source: backlog.head for source, backlog in plan.backlog.items()}
    # A poll that finds nothing leaves everything else as it was, and the next one is another run.
    times = [time and time.isoformat() for time in (plan.next_poll, plan.next_timers)]
    return digest([failure_position(plan.stream, manifest, plan.snapshot), heads, times])


def _refused(stream: "Stream", records: StreamRecords, failure: TidemillError) -> str:
    """Return the position of a refusal, which changes with the code, the reason, and any run in between."""
    try:
        manifest = records.manifest()
    except TidemillError:
        manifest = None
    last_run = None if manifest is None or manifest.last_run is None else manifest.last_run.run_id
    return digest([code_version(stream), failure.what, last_run])

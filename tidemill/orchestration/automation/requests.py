"""A tick of a sensor or a schedule: which streams should run, and what it requests, given the runs that there are."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from dagster import AssetKey, DagsterRunStatus, RunRequest, RunsFilter

from tidemill.definitions.selection import topological_order
from tidemill.orchestration.automation.run_tags import CAUSE, TARGET
from tidemill.run.decide.tick import Decision, decisions
from tidemill.run.decide.waiting import pause_after
from tidemill.text.digest import digest

if TYPE_CHECKING:
    from dagster import DagsterInstance, RunRecord

    from tidemill.definitions.pipeline import Pipeline
    from tidemill.definitions.stream import Stream
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Streams that should run together: those that are due and depend on each other, and those that follow.

    Attributes:
        streams: The streams, in dependency order.
        position: A hash of where those that are due are; a run that changes nothing leaves it as it is.
        reason: Why it is due, for people.
        refused: Whether a run would be refused: one is enough to report it.
    """

    streams: tuple["Stream", ...]
    position: str
    reason: str
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """The decisions of one tick.

    Attributes:
        groups: What should run.
        decisions: The decision about every candidate.
        covered: Streams that are due and that a run in progress covers, with that run.
    """

    groups: tuple[Group, ...]
    decisions: tuple[Decision, ...]
    covered: Mapping["StreamName", str]

    def notes(self) -> list[str]:
        """Return a line about every stream that is neither idle nor run, for people."""
        lines = [f"{name}: run {run} covers it" for name, run in self.covered.items()]
        lines += [
            f"{decision.stream.name}: {decision.reason}"
            for decision in self.decisions
            if decision.state in ("waiting", "busy", "failed", "unreachable")
        ]
        return lines


def tick(
    pipeline: "Pipeline",
    target: "Target",
    *,
    candidates: "Sequence[Stream]",
    covered: "Mapping[StreamName, str]",
    now: datetime,
    conditions: bool,
) -> Tick:
    """Decide about some streams of a pipeline.

    Args:
        candidates: The streams that may start a run.
        covered: The streams that a run in progress covers, with the run's id.
        conditions: Whether the streams' policies apply (a sensor), or any unread data is due (a schedule).
    """
    made = decisions(candidates, target, now=now, conditions=conditions)
    by_name = {decision.stream.name: decision for decision in made}
    ready = [decision for decision in made if decision.state in ("due", "refused")]
    due = {
        decision.stream.name
        for decision in ready
        if decision.state == "due" and decision.stream.name not in covered
    }
    unfit = {name for name, decision in by_name.items() if decision.state not in ("due", "waiting", "idle")}
    selected = due | _followers(pipeline, due, without=unfit | covered.keys())
    groups = [_group(streams, by_name, due) for streams in _components(pipeline, selected)]
    groups += [
        Group(streams=(decision.stream,), position=decision.position, reason=decision.reason, refused=True)
        for decision in ready
        if decision.state == "refused" and decision.stream.name not in covered
    ]
    waiting = {d.stream.name: covered[d.stream.name] for d in ready if d.stream.name in covered}
    return Tick(groups=tuple(groups), decisions=tuple(made), covered=waiting)


def _followers(
    pipeline: "Pipeline", due: "Collection[StreamName]", *, without: "Collection[StreamName]"
) -> "set[StreamName]":
    """Return the streams that new rows of the due ones trigger, and so on.

    A stream with conditions or a schedule of its own does not follow: its own policy decides.
    """
    followers: set[StreamName] = set()
    for stream in topological_order(list(pipeline)):
        triggers = {upstream for upstream, streaming in stream.upstreams.items() if streaming}
        policy = stream.run_when
        follows = not policy.has_conditions and policy.cron is None
        if follows and stream.name not in without and triggers & (followers | set(due)):
            followers.add(stream.name)
    return followers


def _components(pipeline: "Pipeline", selected: "Collection[StreamName]") -> "list[tuple[Stream, ...]]":
    """Return the selected streams in groups that depend on each other."""
    streams = [stream for stream in topological_order(list(pipeline)) if stream.name in selected]
    group_of = {stream.name: {stream.name} for stream in streams}
    for stream in streams:
        for upstream in stream.upstreams.keys() & selected:
            merged = group_of[stream.name] | group_of[upstream]
            group_of |= dict.fromkeys(merged, merged)
    distinct = {frozenset(names): None for names in group_of.values()}
    return [tuple(stream for stream in streams if stream.name in names) for names in distinct]


def _group(
    streams: "Iterable[Stream]", by_name: "Mapping[StreamName, Decision]", due: "Collection[StreamName]"
) -> Group:
    streams = tuple(streams)
    starting = [by_name[stream.name] for stream in streams if stream.name in due]
    position = digest([[str(decision.stream.name), decision.position] for decision in starting])
    reason = "; ".join(f"{decision.stream.name}: {decision.reason}" for decision in starting)
    return Group(streams=streams, position=position, reason=reason)


Cause = Literal["backlog", "schedule"]
POSITION = "tidemill/position"
# A run holds the leases of its streams within seconds. One that has started long ago and does not hold a stream's
# lease is done with that stream, or has died: no launcher but those of Kubernetes and the like notices that.
STARTED_LONG_AGO = timedelta(minutes=5)
_MOST_ATTEMPTS = 12  # more do not lengthen the pause
_NOT_STARTED = (
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.CANCELING,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """What a tick of a sensor or a schedule requests.

    Attributes:
        notes: A line about every stream that should not run now, for people.
        decisions: The decision about every candidate.
    """

    runs: list[RunRequest]
    notes: list[str]
    decisions: "tuple[Decision, ...]"

    @property
    def skip_reason(self) -> str:
        """Why no run was requested."""
        return "\n".join(self.notes) or "Every stream is idle."


def requests(
    instance: "DagsterInstance",
    pipeline: "Pipeline",
    keys: "Mapping[StreamName, AssetKey]",
    target: "Target",
    *,
    candidates: "Sequence[Stream]",
    cause: Cause,
    prefix: str = "",
) -> Requests:
    """Return what a tick requests.

    Args:
        pipeline: The pipeline; its job has the same name, after the prefix.
        candidates: The streams that may start a run.
        cause: What requests it. The policies of the streams apply to the backlog; on a schedule any unread data
            is due.
    """
    now = datetime.now(UTC)
    covered = _covered_streams(instance, f"{prefix}{pipeline.name}", keys, now)
    decided = tick(
        pipeline, target, candidates=candidates, covered=covered, now=now, conditions=cause == "backlog"
    )
    answers = [
        _run_request(instance, group, keys, target.name, cause=cause, now=now) for group in decided.groups
    ]
    return Requests(
        runs=[answer for answer in answers if isinstance(answer, RunRequest)],
        notes=[answer for answer in answers if isinstance(answer, str)] + decided.notes(),
        decisions=decided.decisions,
    )


def _covered_streams(
    instance: "DagsterInstance", job: str, keys: "Mapping[StreamName, AssetKey]", now: datetime
) -> "dict[StreamName, str]":
    """Return the streams that a queued run, or one in progress, covers, with the run's id.

    Args:
        job: The job of the pipeline; a run of it without a selection covers all of its streams.
    """
    covered: dict[StreamName, str] = {}
    records = instance.get_run_records(RunsFilter(statuses=[*_NOT_STARTED, DagsterRunStatus.STARTED]))
    for record in records:
        run = record.dagster_run
        if run.status == DagsterRunStatus.STARTED and _started(record) < now - STARTED_LONG_AGO:
            continue
        selected = run.asset_selection
        for name, key in keys.items():
            if key in selected if selected is not None else run.job_name == job:
                covered.setdefault(name, run.run_id)
    return covered


def _run_request(
    instance: "DagsterInstance",
    group: Group,
    keys: "Mapping[StreamName, AssetKey]",
    target: str,
    *,
    cause: Cause,
    now: datetime,
) -> RunRequest | str:
    """Return the request for a run of a group, or the reason why there is none.

    Runs that started from the same position did not change it: they were refused, they crashed, or they found
    nothing that only Spark could see. A refusal needs no second run; before any other the pause doubles. The newest
    of these runs is a part of the next one's key, so that two ticks at the same time request one run, and a run that
    crashed does not block its key forever.
    """
    started_there = RunsFilter(tags={POSITION: group.position, TARGET: target})
    records = instance.get_run_records(started_there, limit=_MOST_ATTEMPTS)
    newest = records[0].dagster_run if records else None
    if newest is not None and group.refused:
        return f"{group.reason} (reported by run {newest.run_id})"
    if newest is not None:
        again = _ended(records[0]) + pause_after(len(records))
        if now < again:
            return (
                f"{group.reason}; run {newest.run_id} ended as {newest.status.value} and left everything as it "
                f"was, so the next attempt is at {again.isoformat(timespec='seconds')}"
            )
    return RunRequest(
        run_key=f"{group.position}-{'first' if newest is None else newest.run_id}",
        asset_selection=[keys[stream.name] for stream in group.streams],
        tags={POSITION: group.position, CAUSE: cause, TARGET: target},
    )


def _started(record: "RunRecord") -> datetime:
    return _moment(record.start_time) or record.create_timestamp.astimezone(UTC)


def _ended(record: "RunRecord") -> datetime:
    return _moment(record.end_time) or record.update_timestamp.astimezone(UTC)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)

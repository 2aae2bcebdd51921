"""One tick of a sensor or a schedule: which groups of streams should run, and why the others should not."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tidemill.definitions.selection import topological_order
from tidemill.run.decide.tick import Decision, decisions
from tidemill.text.digest import digest

if TYPE_CHECKING:
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

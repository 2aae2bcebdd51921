"""The streams that a command selects, and the order in which they run.

`ads` is a pipeline, `ads/clicks` a stream. `*` matches any part of a name; a leading `+` adds everything upstream
and a trailing `+` everything downstream.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter

from tidemill.definitions.stream import Stream
from tidemill.errors import ConfigurationError, DefinitionError
from tidemill.text.names import StreamName

_EXPRESSION = re.compile(r"(?P<up>\+?)(?P<pipeline>[a-z0-9_*]+)(/(?P<stream>[a-z0-9_*]+))?(?P<down>\+?)")


def select(
    streams: Sequence[Stream], expressions: Sequence[str], exclude: Sequence[str] = ()
) -> tuple[Stream, ...]:
    """Return the streams that the expressions name, in dependency order.

    Args:
        expressions: The selection; none means all.
        exclude: Streams to leave out of it, written the same way.

    Raises:
        ConfigurationError: An expression is malformed or matches no stream, or nothing is left.
        DefinitionError: The streams read each other in a cycle.
    """
    in_order = topological_order(streams)
    taken = {stream.name for stream in in_order} if not expressions else _matches(in_order, expressions)
    left = taken - _matches(in_order, exclude)
    if taken and not left:
        raise ConfigurationError(
            f"The selection is empty: {_quoted(expressions) or 'every stream'} without {_quoted(exclude)}.",
            code="selection-empty",
        )
    return tuple(stream for stream in in_order if stream.name in left)


def topological_order(streams: Sequence[Stream]) -> tuple[Stream, ...]:
    """Return the streams, each after its predecessors, otherwise in the order of their declaration.

    Upstream streams that are not among them do not count.

    Raises:
        DefinitionError: They read each other in a cycle, which it names.
    """
    by_name = {stream.name: stream for stream in streams}
    position = {name: number for number, name in enumerate(by_name)}
    graph = TopologicalSorter(predecessors(streams))
    try:
        graph.prepare()
    except CycleError as error:
        cycle = " <- ".join(str(name) for name in error.args[1])
        raise DefinitionError(
            f"These streams read each other in a cycle: {cycle}.", code="streams-in-a-cycle"
        ) from None
    names: list[StreamName] = []
    while graph.is_active():
        ready = sorted(graph.get_ready(), key=position.__getitem__)
        graph.done(*ready)
        names += ready
    return tuple(by_name[name] for name in names)


def predecessors(streams: Sequence[Stream]) -> dict[StreamName, list[StreamName]]:
    """Return by stream those of the others that run before it.

    These are the streams that it reads, those that append to a table that it reads, and the one to whose table it
    appends itself.
    """
    by_name = {stream.name: stream for stream in streams}
    into = {stream.name: _shared_tables(stream) for stream in streams}
    before = {}
    for name in by_name:
        upstreams = _known(by_name, name)
        appending = [other for other, tables in into.items() if not tables.isdisjoint(upstreams)]
        before[name] = [*upstreams, *appending, *(table for table in into[name] if table in by_name)]
    return before


def _shared_tables(stream: Stream) -> set[StreamName]:
    return {sink.appends_into for sink in stream.sinks if sink.appends_into is not None}


def _known(by_name: Mapping[StreamName, Stream], name: StreamName) -> list[StreamName]:
    return [upstream for upstream in by_name[name].upstreams if upstream in by_name]


def _matches(streams: Sequence[Stream], expressions: Sequence[str]) -> set[StreamName]:
    by_name = {stream.name: stream for stream in streams}
    downstream: dict[StreamName, list[StreamName]] = {name: [] for name in by_name}
    for name in by_name:
        for upstream in _known(by_name, name):
            downstream[upstream].append(name)
    taken: set[StreamName] = set()
    for expression in expressions:
        parts = _EXPRESSION.fullmatch(expression)
        if parts is None:
            raise ConfigurationError(
                f"The selection {expression!r} cannot be parsed: write ads, ads/clicks, ads/clicks+, "
                "+ads/clicks, or a name with * in it.",
                code="selection-invalid",
            )
        named = [
            name
            for name in by_name
            if fnmatchcase(name.pipeline, parts["pipeline"])
            and fnmatchcase(name.stream, parts["stream"] or "*")
        ]
        if not named:
            raise ConfigurationError(
                f"The selection {expression!r} matches no stream.{_hint(expression, by_name)}",
                code="selection-without-match",
            )
        taken.update(named)
        if parts["up"]:
            taken |= _reached(named, lambda name: _known(by_name, name))
        if parts["down"]:
            taken |= _reached(named, downstream.__getitem__)
    return taken


def _reached(
    start: Iterable[StreamName], neighbours: Callable[[StreamName], Iterable[StreamName]]
) -> set[StreamName]:
    reached: set[StreamName] = set()
    waiting = list(start)
    while waiting:
        for name in neighbours(waiting.pop()):
            if name not in reached:
                reached.add(name)
                waiting.append(name)
    return reached


def _hint(expression: str, names: Iterable[StreamName]) -> str:
    """Return a suggestion: a close name, or a stream whose pipeline was left out."""
    text = expression.strip("+")
    names = list(names)
    known = {str(name): str(name) for name in names} | {name.pipeline: name.pipeline for name in names}
    known |= {name.stream: str(name) for name in names if name.stream not in known}
    matches = dict.fromkeys(known[word] for word in get_close_matches(text, known, n=3))
    if matches:
        return f" Did you mean {', '.join(matches)}?"
    return f" Known pipelines: {', '.join(dict.fromkeys(name.pipeline for name in names)) or 'none'}."


def _quoted(expressions: Sequence[str]) -> str:
    return ", ".join(repr(expression) for expression in expressions)

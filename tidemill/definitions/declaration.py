"""The parts of a stream's declaration, checked: its function, its sources, its sinks, its rules."""

import functools
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.definitions.bounds import Checks
from tidemill.definitions.expectations import Expect
from tidemill.definitions.options import OutputMode
from tidemill.definitions.sink import Sink, TableSink
from tidemill.definitions.source import Source
from tidemill.definitions.sql import SqlFunction
from tidemill.definitions.stream import Stream
from tidemill.errors import DefinitionError
from tidemill.text.names import MAIN_SINK, RESERVED_RULES, StreamName, valid_argument
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from tidemill.definitions.stream import Transform


_ROWS: Mapping[OutputMode, str] = {
    "append": "so a batch has only the rows that are new",
    "update": "whose rows replace earlier ones",
    "complete": "so each batch has the whole result",
}


@dataclass(frozen=True, slots=True)
class Underlying:
    """What a callable is known by.

    Attributes:
        name: The name of its function; None for a lambda.
        description: Its docstring.
        file: The file of its code; None where it has none.
        line: The line of its code in the file.
    """

    name: str | None
    description: str
    file: str | None
    line: int = 0


def underlying(function: "Transform") -> Underlying:
    """Return the function behind a partial, a method or a callable object.

    Raises:
        DefinitionError: It is a class, a coroutine or a generator, or is not callable.
    """
    if isinstance(function, SqlFunction):
        return Underlying(None, function.description, function.file, function.line)
    inner: object = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if inspect.isclass(inner) or not callable(inner):
        raise DefinitionError(
            f"the function is {function!r}: give a function of DataFrames.", code="function-invalid"
        )
    described = inner if inspect.isroutine(inner) else type(inner).__call__
    if inspect.iscoroutinefunction(described) or inspect.isgeneratorfunction(described):
        raise DefinitionError(
            f"the function {function!r} is a coroutine or a generator: return a DataFrame.",
            code="function-invalid",
        )
    name = getattr(inner, "__name__", None)
    code = getattr(described, "__code__", None)
    location = (code.co_filename, code.co_firstlineno) if inspect.iscode(code) else (None, 0)
    return Underlying(
        name=name if isinstance(name, str) and name != "<lambda>" else None,
        description=inspect.cleandoc(inspect.getdoc(inner) or "") if inspect.isroutine(inner) else "",
        file=location[0],
        line=location[1],
    )


def location_of(function: "Transform") -> str:
    """Return `file:line` of a function."""
    code = underlying(function)
    return "unknown location" if code.file is None else f"{Path(code.file).name}:{code.line}"


def arguments_of(function: "Transform") -> list[str]:
    """Return the arguments of a function that take DataFrames: those that are positional.

    Raises:
        DefinitionError: Its signature cannot be read, or it takes a variable number of arguments.
    """
    if isinstance(function, SqlFunction):
        return list(function.arguments)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise DefinitionError(
            f"the function {function!r} has no signature that Python can read.", code="function-invalid"
        ) from None
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        raise DefinitionError(
            "the function takes *args: name one argument per source.", code="function-invalid"
        )
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]


def named_sources(
    function: "Transform", source: Source | Stream | Mapping[str, Source | Stream]
) -> dict[str, Source]:
    """Return the sources by argument name, in the order of the function's arguments.

    Raises:
        DefinitionError: The names do not match, or something is not a source.
    """
    arguments = arguments_of(function)
    is_sql = isinstance(function, SqlFunction)
    if not isinstance(source, Mapping):
        if len(arguments) != 1:
            takes = "SQL text reads" if is_sql else "function takes"
            raise DefinitionError(
                f"source is one source, and the {takes} {pluralize(len(arguments), 'table' if is_sql else 'argument')} "
                f"{arguments}: give source={{name: source, ...}}, or read one.",
                code="source-arguments-differ",
            )
        source = {arguments[0]: source}
    if set(source) != set(arguments):
        raise DefinitionError(
            f"the keys of source are {sorted(source)}, and the "
            f"{'tables of the SQL text' if is_sql else 'arguments of the function'} are {sorted(arguments)}: "
            "they must be the same names.",
            code="source-arguments-differ",
        )
    named = {}
    for argument in arguments:
        given = source[argument]
        reading = given.reading() if isinstance(given, Stream) else given
        if not isinstance(reading, Source):
            raise DefinitionError(
                f"source {argument!r} is {given!r}: give a Feed, a KafkaSource, a FileSource, "
                "a DeltaSource or another stream."
            )
        named[valid_argument(argument)] = reading
    return named


def ordered_sinks(sink: Sink | Sequence[Sink]) -> tuple[Sink, ...]:
    """Return the sinks with the main table last; without a table sink, that is a table of the commits.

    Raises:
        DefinitionError: Something is not a sink, or the names are not unique, or the main sink is not a table.
    """
    sinks = (sink,) if isinstance(sink, Sink) else tuple(sink) if isinstance(sink, Sequence) else ()
    if not sinks or not all(isinstance(one, Sink) for one in sinks):
        raise DefinitionError(
            f"sink is {sink!r}: give a DeltaAppend, a DeltaMerge, a DeltaOverwrite, a FileSink, a BatchSink, or a list "
            "of them."
        )
    sinks = tuple(one.resolved for one in sinks)
    if sinks[0].commit_table is not None and not any(isinstance(one, TableSink) for one in sinks):
        sinks += (sinks[0].commit_table,)
    if MAIN_SINK in (one.name for one in sinks if not isinstance(one, TableSink)):
        raise DefinitionError(
            f"sink name {MAIN_SINK!r} is reserved for a table, whose commit is the commit point; choose another."
        )
    names = [one.name for one in sinks]
    if len(set(names)) < len(names) or MAIN_SINK not in names:
        raise DefinitionError(
            f"sink names are {names}: each needs its own name, and exactly one sink, the main one, has none.",
            code="sink-name-taken",
        )
    if "quarantine" in names:
        raise DefinitionError(
            "sink name 'quarantine' is reserved for Tidemill's own table; choose another.",
            code="name-reserved",
        )
    return tuple(sorted(sinks, key=lambda one: one.name == MAIN_SINK))


def unique_rules(expect: Sequence[Expect]) -> tuple[Expect, ...]:
    """Return the rules.

    Raises:
        DefinitionError: Something is not a rule, two have the same name, or a name is reserved.
    """
    rules = tuple(expect) if isinstance(expect, Sequence) else ()
    if not isinstance(expect, Sequence) or not all(isinstance(rule, Expect) for rule in rules):
        raise DefinitionError(f"expect is {expect!r}: give a list of Expect(...).")
    names = [rule.name for rule in rules]
    if len(set(names)) < len(names):
        raise DefinitionError(
            f"expect has the names {names}: each rule needs its own.", code="rule-name-taken"
        )
    if reserved := sorted(RESERVED_RULES.intersection(names)):
        raise DefinitionError(
            f"expectation {reserved[0]!r} has the name of a check of Tidemill; choose another.",
            code="name-reserved",
        )
    return rules


def valid_checks(checks: object, *, default: Checks) -> Checks:
    """Return the bounds of a stream's checks, or the default where there are none.

    Raises:
        DefinitionError: It is not a `Checks`.
    """
    if checks is None:
        return default
    if not isinstance(checks, Checks):
        raise DefinitionError(f"checks is {checks!r}: give Checks(...).")
    return checks


def check_freshness(stream: Stream) -> None:
    """Check that a declared freshness can be evaluated.

    Raises:
        DefinitionError: Nothing says how old an event is.
    """
    if stream.checks.freshness and stream.checks.event_time and not stream.main.has_rows:
        raise DefinitionError(
            "checks has event_time, a column of the table, and no sink is a table. Leave event_time out, or add a "
            "DeltaAppend() to the sinks."
        )
    watermarks = any(source.watermark is not None for source in stream.sources.values())
    if stream.checks.freshness is not None and stream.checks.event_time is None and not watermarks:
        raise DefinitionError(
            "checks has freshness, and no source has a watermark: name the column of the table that has the event "
            "times with event_time=.",
            code="freshness-without-event-time",
        )


def _check_idle_after(stream: Stream) -> None:
    marks = {
        name: source.watermark for name, source in stream.sources.items() if source.watermark is not None
    }
    for name, mark in marks.items():
        if mark.idle_after is not None and len(marks) == 1:
            raise DefinitionError(
                f"the source {name!r} has idle_after, and no other source has a watermark that it could hold back. "
                "Leave idle_after out.",
                code="idle-after-without-effect",
            )


def check_parts(stream: Stream) -> None:
    """Check what only the parts together can get wrong.

    Raises:
        DefinitionError: The sources, the output mode and the sink do not fit each other.
    """
    _check_idle_after(stream)
    if not any(source.streaming for source in stream.sources.values()):
        raise DefinitionError(
            "every source is a snapshot, so nothing would ever trigger the stream: let one of them stream."
            + "".join(
                {f" {reason}": None for source in stream.sources.values() if (reason := source.never_streams)}
            ),
            code="no-streaming-source",
        )
    if stream.name in stream.upstreams:
        raise DefinitionError("it reads its own table, which is a cycle.", code="streams-in-a-cycle")
    feeds = [key for key, source in stream.sources.items() if source.feed_name is not None]
    if feeds and len(stream.sources) > 1:
        raise DefinitionError(
            f"source {feeds[0]!r} is a feed next to other sources: a feed is ingested by a separate, stateless "
            "stream, because its quarantine needs the raw record. Ingest it first and read that stream here.",
            code="feed-not-alone",
        )
    if feeds and stream.query.output_mode != "append":
        raise DefinitionError(
            f"output_mode is {stream.query.output_mode!r}, which is for aggregations, and a feed with its "
            "quarantine needs a stateless stream. Ingest the feed into one stream and aggregate in another.",
            code="feed-with-state",
        )
    for sink in stream.sinks:
        _check_output_mode(stream.query.output_mode, sink)
        if sink.appends_into is not None and sink.appends_into in {stream.name, *_all_upstreams(stream)}:
            raise DefinitionError(
                f"it reads the table of {sink.appends_into}, to which its sink {sink.name!r} appends: a cycle.",
                code="streams-in-a-cycle",
            )
    if stream.quarantines_rows and stream.query.output_mode == "complete":
        raise DefinitionError(
            "an expectation has on_violation='quarantine', and output_mode is 'complete': each batch has the whole "
            "result, so each would quarantine the same rows again, and the next batch would remove a row that was "
            "replayed. Use on_violation='drop' or 'fail'; or quarantine the rows in the stream that this one reads.",
            code="expectation-unsuitable",
        )
    if stream.backfill_by is not None and not stream.main.has_rows:
        raise DefinitionError(
            "backfill_by is declared, and no sink is a table: a backfill replaces rows of a table. Leave backfill_by "
            "out, or add a DeltaAppend() to the sinks."
        )
    if stream.lookback is not None:
        _check_lookback(stream)


def _all_upstreams(stream: Stream) -> set[StreamName]:
    """Return the streams that a stream reads, directly or through others."""
    names: set[StreamName] = set()
    waiting = [stream]
    while waiting:
        for source in waiting.pop().sources.values():
            if source.upstream is not None and source.upstream not in names:
                names.add(source.upstream)
                definition = getattr(source, "definition", None)  # a table of a stream has it
                waiting += [definition] if isinstance(definition, Stream) else []
    return names


def _check_lookback(stream: Stream) -> None:
    """Check that a backfill of a stream may read less than everything."""
    if stream.backfill_by is None:
        raise DefinitionError(
            "lookback is declared, and no backfill_by: name the column whose values a backfill selects by.",
            code="backfill-by-missing",
        )
    if not all(sink.only_appends for sink in stream.tables):
        raise DefinitionError(
            "lookback is declared, and rows of the sink depend on everything before them: a backfill reads "
            "everything. Leave lookback out, or use DeltaAppend().",
            code="lookback-unused",
        )


def _check_output_mode(mode: OutputMode, sink: Sink) -> None:
    """Check that a sink can take the rows of an output mode."""
    if (reason := sink.refuses(mode)) is not None:
        label = "sink" if sink.name == MAIN_SINK else f"sink {sink.name!r}"
        raise DefinitionError(
            f"output_mode is {mode!r}, {_ROWS[mode]}, and the {label} is {reason}", code="sink-unsuitable"
        )

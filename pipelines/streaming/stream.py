"""Pipeline and Stream: what a user declares, validated when it is declared. Needs no Spark.

```python
ads = Pipeline("ads", description="From raw events to campaign reports.")

@ads.stream(source=Feed("ad-clicks", value=from_json(CLICK)), sink=DeltaAppend())
def clicks(events):
    \"\"\"Every click, parsed, one row each.\"\"\"
    return events
```
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipelines.streaming.errors import DefinitionError
from pipelines.streaming.expectations import Expect
from pipelines.streaming.names import RESERVED_PIPELINES, StreamName, valid_argument, valid_name
from pipelines.streaming.options import QueryOptions
from pipelines.streaming.records.lake import MAIN
from pipelines.streaming.sinks import DeltaMerge, Sink
from pipelines.streaming.sources import Feed, Source, StreamReading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Transform = Callable[..., DataFrame]


@dataclass(frozen=True, eq=False)
class Stream:
    """One table and the query that fills it. Made by `Pipeline.stream`.

    It is callable: `attribution(df, df, df)` runs the function. As a source of another stream it gives its
    new rows; `.changes()` and `.static()` give its changes and a snapshot.

    Attributes:
        name: `<pipeline>/<stream>`.
        function: The transform: DataFrames in, one DataFrame out.
        sources: What it reads; the keys are the function's arguments and the names in the checkpoint.
        sinks: What it writes, in order; the last one is the main table.
        expect: Rules on the output.
        query: How the query runs.
        description: The function's docstring.
        owners: Who answers for it, as Dagster owners (an e-mail address, or `team:name`).
        tags: Labels.
        declared_at: `file:line` of the declaration.
    """

    name: StreamName
    function: "Transform"
    sources: Mapping[str, Source]
    sinks: tuple[Sink, ...]
    expect: tuple[Expect, ...] = ()
    query: QueryOptions = field(default_factory=QueryOptions)
    description: str = ""
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    declared_at: str = ""

    def __call__(self, *inputs: "DataFrame") -> "DataFrame":
        """The function's output for these inputs."""
        return self.function(*inputs)

    def __repr__(self) -> str:
        return f"Stream({self.name})"

    @property
    def main(self) -> Sink:
        """The main table: its commit is the commit point of a batch."""
        return next(sink for sink in self.sinks if sink.name == MAIN)

    @property
    def feed(self) -> Feed | None:
        """The feed that it ingests, if it does."""
        return next((source for source in self.sources.values() if isinstance(source, Feed)), None)

    @property
    def is_merge(self) -> bool:
        """Whether the main table is a merge."""
        return isinstance(self.main, DeltaMerge)

    @property
    def upstreams(self) -> Mapping[StreamName, bool]:
        """The streams it reads; True where new rows in one wake this stream."""
        upstreams: dict[StreamName, bool] = {}
        for source in self.sources.values():
            if source.upstream is not None:
                upstreams[source.upstream] = upstreams.get(source.upstream, False) or source.streaming
        return upstreams

    def reading(self) -> StreamReading:
        """Its new rows as a source.

        Raises:
            DefinitionError: the table is a merge table or is rewritten, so it has no new rows as such.
        """
        if self.is_merge:
            raise DefinitionError(
                f"{self.name} is a merge table: a merge rewrites rows, so it cannot be streamed as it is. "
                f"Use {self.name.stream}.changes() for its changes or {self.name.stream}.static() for a snapshot."
            )
        if self.query.output_mode == "complete":
            raise DefinitionError(
                f"{self.name} is rewritten by every batch (output mode complete), so it cannot be streamed. "
                f"Use {self.name.stream}.static() for a snapshot."
            )
        return StreamReading(stream=self.name, mode="append", is_merge=False)

    def with_watermark(self, column: str, delay: str) -> StreamReading:
        """Its new rows as a source with a watermark; see `Source.with_watermark`."""
        return self.reading().with_watermark(column, delay)

    def changes(self) -> StreamReading:
        """Its change data feed as a source: `_change_type`, `_commit_version`, `_commit_timestamp`.

        Raises:
            DefinitionError: the table is not a merge table, so it has no change data feed.
        """
        if not self.is_merge:
            raise DefinitionError(
                f"{self.name} is an append table: it has no change data feed. "
                f"Use {self.name.stream} itself for its new rows."
            )
        return StreamReading(stream=self.name, mode="changes", is_merge=True)

    def static(self) -> StreamReading:
        """A snapshot as a source: its Delta version is pinned for the run, and new data wakes nobody."""
        return StreamReading(stream=self.name, mode="static", is_merge=self.is_merge)


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A set of streams under one name.

    Attributes:
        name: Also the name of the Dagster job, and the first part of every stream's key.
        description: What it is for.
        owners: Who answers for its streams, unless a stream says otherwise.
        tags: Labels of all its streams.
    """

    name: str
    description: str = ""
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    _streams: dict[str, Stream] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        valid_name(self.name, what="pipeline")
        if self.name in RESERVED_PIPELINES:
            raise DefinitionError(f"pipeline name {self.name!r} is reserved for Tidemill itself.")

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._streams.values())

    def __getitem__(self, stream: str) -> Stream:
        return self._streams[stream]

    def __contains__(self, stream: object) -> bool:
        return stream in self._streams

    def stream(
        self,
        *,
        source: Source | Stream | Mapping[str, Source | Stream],
        sink: Sink | Sequence[Sink],
        expect: Sequence[Expect] = (),
        query: QueryOptions | None = None,
        name: str | None = None,
        owners: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
    ) -> "Callable[[Transform], Stream]":
        """Declares a stream; the function below it is the transform.

        Args:
            source: One source, or sources by the function's argument names.
            sink: One sink, or an ordered list, each with a name.
            expect: Rules on the output.
            query: How the query runs.
            name: The stream's name; the default is the function's.
            owners: Who answers for it; the default is the pipeline's.
            tags: Labels, added to the pipeline's.

        Raises:
            DefinitionError: with the stream, the field, the value and the reason.
        """

        def declare(function: "Transform") -> Stream:
            full = StreamName(
                self.name, valid_name(name or getattr(function, "__name__", None), what="stream")
            )
            try:
                if full.stream in self._streams:
                    raise DefinitionError(  # noqa: TRY301 - one place adds the stream to every error
                        f"there is a stream of that name already, at {self._streams[full.stream].declared_at}."
                    )
                stream = Stream(
                    name=full,
                    function=function,
                    sources=_sources(function, source),
                    sinks=_sinks(sink),
                    expect=_rules(expect),
                    query=query or QueryOptions(),
                    description=inspect.cleandoc(function.__doc__ or ""),
                    owners=tuple(owners) or self.owners,
                    tags={**self.tags, **(tags or {})},
                    declared_at=_place(function),
                )
                _check(stream)
            except DefinitionError as error:
                raise DefinitionError(f"{error.what} ({_place(function)})", stream=full) from None
            self._streams[full.stream] = stream
            return stream

        return declare


def _place(function: "Transform") -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno}" if code else "unknown place"


def _sources(
    function: "Transform", source: Source | Stream | Mapping[str, Source | Stream]
) -> dict[str, Source]:
    """Sources by argument name, in the order of the function's arguments."""
    arguments = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if not isinstance(source, Mapping):
        if len(arguments) != 1:
            raise DefinitionError(
                f"source is one source, and the function takes {len(arguments)} arguments {arguments}: "
                "give source={argument: source, ...}, or let the function take one DataFrame."
            )
        source = {arguments[0]: source}
    if set(source) != set(arguments):
        raise DefinitionError(
            f"the keys of source are {sorted(source)}, and the function's arguments are {sorted(arguments)}: "
            "they must be the same names."
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


def _sinks(sink: Sink | Sequence[Sink]) -> tuple[Sink, ...]:
    """Sinks with the main table last."""
    sinks = (sink,) if isinstance(sink, Sink) else tuple(sink) if isinstance(sink, Sequence) else ()
    if not sinks or not all(isinstance(each, Sink) for each in sinks):
        raise DefinitionError(f"sink is {sink!r}: give a DeltaAppend, a DeltaMerge, or a list of them.")
    names = [each.name for each in sinks]
    if len(set(names)) < len(names) or MAIN not in names:
        raise DefinitionError(
            f"sink names are {names}: each needs its own name, and one, the main table, has none."
        )
    if reserved := {"quarantine"}.intersection(names):
        raise DefinitionError(f"sink name {reserved.pop()!r} is the name of our own table; choose another.")
    return tuple(sorted(sinks, key=lambda each: each.name == MAIN))


def _rules(expect: Sequence[Expect]) -> tuple[Expect, ...]:
    rules = tuple(expect) if isinstance(expect, Sequence) else ()
    if not all(isinstance(rule, Expect) for rule in rules) or len(rules) != len(tuple(expect)):
        raise DefinitionError(f"expect is {expect!r}: give a list of Expect(...).")
    names = [rule.name for rule in rules]
    if len(set(names)) < len(names):
        raise DefinitionError(f"expect has the names {names}: each rule needs its own.")
    return rules


def _check(stream: Stream) -> None:
    """What only the parts together can get wrong."""
    if not any(source.streaming for source in stream.sources.values()):
        raise DefinitionError(
            "every source is a snapshot, so nothing would ever wake the stream: let one of them stream."
        )
    if stream.name in stream.upstreams:
        raise DefinitionError("it reads its own table, which is a cycle.")
    feeds = [key for key, source in stream.sources.items() if isinstance(source, Feed)]
    if feeds and len(stream.sources) > 1:
        raise DefinitionError(
            f"source {feeds[0]!r} is a feed among others: a feed is ingested by a stateless stream of its own, "
            "because its quarantine needs the raw record. Ingest it first and read that stream here."
        )
    if feeds and stream.query.output_mode != "append":
        raise DefinitionError(
            f"a feed with quarantine needs a stateless stream, and output_mode {stream.query.output_mode!r} "
            "is for aggregations. Ingest the feed into one stream and aggregate in another."
        )
    if stream.query.output_mode != "append" and not stream.is_merge:
        raise DefinitionError(
            f"output_mode {stream.query.output_mode!r} emits rows that replace earlier ones, and an append "
            "table cannot take them: use DeltaMerge(keys=..., sequence_by=...)."
        )

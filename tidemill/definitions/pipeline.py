"""Pipeline: streams under one name, declared by a decorator and validated when declared. Needs no Spark.

```python
ads = Pipeline("ads", description="From raw events to campaign reports.")

@ads.stream(source=Feed("ad-clicks", format=Json(CLICK)), sink=DeltaAppend())
def clicks(events):
    \"\"\"Every click, parsed, one row each.\"\"\"
    return events
```
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from tidemill.definitions.arguments import with_known_arguments
from tidemill.definitions.backfill_by import BackfillBy, backfill_column
from tidemill.definitions.bounds import Checks
from tidemill.definitions.declaration import (
    check_freshness,
    check_parts,
    location_of,
    named_sources,
    ordered_sinks,
    underlying,
    unique_rules,
    valid_checks,
)
from tidemill.definitions.expectations import Expect
from tidemill.definitions.options import QueryOptions
from tidemill.definitions.run_when import RunWhen
from tidemill.definitions.sink import Sink
from tidemill.definitions.source import Source
from tidemill.definitions.sql import sql_function
from tidemill.definitions.stream import Stream
from tidemill.errors import DefinitionError
from tidemill.text.durations import parse_duration
from tidemill.text.names import RESERVED_PIPELINES, StreamName, valid_name, valid_owner, valid_tag

if TYPE_CHECKING:
    from tidemill.definitions.stream import Transform


class _Further(TypedDict, total=False):
    """The arguments of `Pipeline.stream` that a stream in SQL takes as they are."""

    expect: Sequence[Expect]
    query: QueryOptions | None
    checks: Checks | None
    owners: Sequence[str]
    tags: Mapping[str, str] | None
    run_when: RunWhen | None
    record_idle: bool | None
    backfill_by: str | BackfillBy | None
    lookback: str | timedelta | None


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A set of streams under one name.

    Attributes:
        name: Also the name of the Dagster job, and the first part of every stream's key.
        description: What it is for.
        owners: Who is responsible for its streams, unless a stream has owners of its own.
        tags: Labels of all its streams.
        run_when: When the backlog of a stream starts a run, unless a stream has a policy of its own.
        record_idle: Whether Dagster records an idle run as a materialization, unless a stream says otherwise.
        checks: Bounds and severities of the checks of its streams, unless a stream has its own.
    """

    name: str
    description: str = ""
    owners: Sequence[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    run_when: RunWhen = field(default_factory=RunWhen)
    record_idle: bool = False
    checks: Checks = field(default_factory=Checks)
    _streams: dict[str, Stream] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        valid_name(self.name, field="pipeline")
        if self.name in RESERVED_PIPELINES:
            raise DefinitionError(
                f"pipeline name {self.name!r} is reserved by Tidemill or by Dagster.", code="name-reserved"
            )
        try:
            object.__setattr__(self, "owners", _owners(self.owners))
            object.__setattr__(self, "tags", _tags(self.tags))
            _run_when(self.run_when)
            valid_checks(self.checks, default=Checks())
        except DefinitionError as error:
            raise DefinitionError(f"pipeline {self.name!r}: {error.what}", code=error.code) from None

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._streams.values())

    def __getitem__(self, stream: str) -> Stream:
        return self._streams[stream]

    def __contains__(self, stream: object) -> bool:
        return stream in self._streams

    @with_known_arguments
    def stream(
        self,
        *,
        source: Source | Stream | Mapping[str, Source | Stream],
        sink: Sink | Sequence[Sink],
        expect: Sequence[Expect] = (),
        query: QueryOptions | None = None,
        checks: Checks | None = None,
        name: str | None = None,
        owners: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        run_when: RunWhen | None = None,
        record_idle: bool | None = None,
        backfill_by: str | BackfillBy | None = None,
        lookback: str | timedelta | None = None,
    ) -> "Callable[[Transform], Stream]":
        """Declare a stream; the function below it is the transform.

        Args:
            source: One source, or sources by the function's argument names.
            sink: One sink, or an ordered list, each with a name.
            expect: Rules on the output.
            query: How the query runs.
            checks: Bounds and severities of its checks; the default is the pipeline's, as a whole.
            name: The stream's name; the default is the function's.
            owners: Who is responsible for it; the default is the pipeline's owners.
            tags: Labels, added to the pipeline's.
            run_when: When its backlog starts a run; the default is the pipeline's policy.
            record_idle: Whether Dagster records an idle run as a materialization; the default is the pipeline's.
            backfill_by: The column of its tables whose values a backfill selects by: a date, a timestamp or a string.
                A `BackfillBy` adds partitions in Dagster.
            lookback: How much of the sources a backfill reads before and after its range, by the times of files,
                messages and commits: `"2 days"`. It must cover windows, watermark delays, bounds of joins, and how
                late data arrive. The default is everything that the stream has read.

        Returns:
            A decorator that turns the function into the stream.

        Raises:
            DefinitionError: With the stream, the field, the value and the reason.
        """

        def declare(function: "Transform") -> Stream:
            full_name = self._name_of(function, name)
            try:
                if full_name.stream in self._streams:
                    raise DefinitionError(  # noqa: TRY301 - one handler adds the stream to every error
                        f"a stream of that name exists, at {self._streams[full_name.stream].declared_at}.",
                        code="stream-name-taken",
                    )
                stream = Stream(
                    name=full_name,
                    function=function,
                    sources=named_sources(function, source),
                    sinks=ordered_sinks(sink),
                    expect=unique_rules(expect),
                    query=query or QueryOptions(),
                    checks=valid_checks(checks, default=self.checks),
                    description=underlying(function).description,
                    owners=_owners(owners) or tuple(self.owners),
                    tags={**self.tags, **_tags(tags or {})},
                    run_when=self.run_when if run_when is None else _run_when(run_when),
                    record_idle=self.record_idle if record_idle is None else record_idle,
                    backfill_by=backfill_column(backfill_by),
                    lookback=None if lookback is None else parse_duration(lookback, field="lookback"),
                    declared_at=location_of(function),
                )
                check_parts(stream)
                if checks is not None:
                    check_freshness(stream)
            except DefinitionError as error:
                raise DefinitionError(
                    f"{error.what} ({location_of(function)})", stream=full_name, code=error.code
                ) from None
            self._streams[full_name.stream] = stream
            return stream

        return declare

    def sql(
        self,
        name: str,
        text: str | Path,
        *,
        source: Source | Stream | Mapping[str, Source | Stream],
        sink: Sink | Sequence[Sink],
        description: str = "",
        **further: Unpack[_Further],
    ) -> Stream:
        """Declare a stream by a SELECT over its sources.

        ```python
        ads.sql("big", "SELECT * FROM impressions WHERE cost_micros > 1000", source=impressions, sink=DeltaAppend())
        ```

        Args:
            name: The stream's name.
            text: The text; or the path of a file that ends with `.sql`, relative to the file with this call.
            source: One source, by the only name that the text reads; or sources by the names that it reads. The text
                may also name the table of a `DeltaSource(table=...)` as the catalog does.
            sink: One sink, or an ordered list, each with a name.
            description: What the stream is for.
            further: Other arguments of `Pipeline.stream`.

        Raises:
            DefinitionError: With the stream, and the line of the text or the field.
        """
        try:
            function = sql_function(text, description).reading(source)
        except DefinitionError as error:
            raise DefinitionError(error.what, stream=f"{self.name}/{name}", code=error.code) from None
        return self.stream(name=name, source=source, sink=sink, **further)(function)

    def _name_of(self, function: "Transform", name: str | None) -> StreamName:
        name = name or underlying(function).name
        if name is None:
            raise DefinitionError(
                f"pipeline {self.name!r}: the function {function!r} has no name that a stream could have "
                f"({location_of(function)}): give the stream one with name=.",
                code="name-invalid",
            )
        return StreamName(self.name, valid_name(name, field="stream"))


def _owners(owners: Sequence[str]) -> tuple[str, ...]:
    if isinstance(owners, str) or not isinstance(owners, Sequence):
        raise DefinitionError(f"owners is {owners!r}: give a list of e-mail addresses or 'team:<name>'.")
    return tuple(valid_owner(owner) for owner in owners)


def _run_when(run_when: RunWhen) -> RunWhen:
    if not isinstance(run_when, RunWhen):
        raise DefinitionError(f"run_when is {run_when!r}: give a RunWhen(...).")
    return run_when


def _tags(tags: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(tags, Mapping):
        raise DefinitionError(f"tags is {tags!r}: give a dict of strings.")
    return dict(valid_tag(key, value) for key, value in tags.items())

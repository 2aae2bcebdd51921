"""What the current code would do to streams, before they run."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tidemill.connectors.connector import SourceContext
from tidemill.definitions.options import pinned_differences
from tidemill.errors import CanceledError, ConfigurationError, TidemillError
from tidemill.plans import state_compatibility as code_change
from tidemill.records.stream_records import Snapshot, StreamRecords
from tidemill.run.decide import sources as source_records
from tidemill.run.decide.preconditions import check
from tidemill.run.execute import query
from tidemill.run.spark import classic
from tidemill.run.spark.engine import session_of
from tidemill.run.spark.error_translation import translated
from tidemill.run.tables import new_readers
from tidemill.run.tables.schemas import schemas_of, with_schemas
from tidemill.run.tables.versions import current_versions, have_versions

if TYPE_CHECKING:
    from tidemill.definitions.stream import Stream
    from tidemill.run.spark.engine import Engine
    from tidemill.target.target import Target

Kind = Literal["nothing", "safe", "unknown", "mixes_state", "refused_by_spark", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeChange:
    """What the current code of a stream would do to it.

    Attributes:
        stream: The stream.
        kind: `nothing`: the code is the same. `safe`: the state keeps its meaning. `unknown`: there is no verdict.
            `mixes_state`, `refused_by_spark`: the next run refuses the code, unless it is accepted. `refused`: the
            next run refuses the definition, with `error`.
        what: The verdict in one sentence.
        differences: What differs in the stateful operators: `operator`, `name`, `before` and `now` of each.
        error: What the next run would raise; None where it would start.
        fix: What to run or to edit; empty where no action is needed.
        warnings: What is declared and has no effect, a sentence each.
        schemas: The columns that the first run inferred, as DDL, by source.
    """

    stream: "Stream"
    kind: Kind
    what: str
    differences: tuple[code_change.Difference, ...] = ()
    error: TidemillError | None = None
    fix: str = ""
    warnings: tuple[str, ...] = field(default=())
    schemas: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_fine(self) -> bool:
        """Whether the next run would start, and the state would keep its meaning."""
        return self.kind in ("nothing", "safe")


def code_changes(
    streams: "Iterable[Stream]",
    target: "Target",
    engine: "Engine",
    *,
    on_build: "Callable[[Stream], None] | None" = None,
) -> Iterator[CodeChange]:
    """Yield what the current code would do to each stream. Nothing is changed.

    Args:
        streams: The streams.
        target: The target.
        engine: Where Spark sessions come from; not asked for streams that have no state and no batch.
        on_build: Called before the query of a stream is built.

    Raises:
        ConfigurationError: Spark cannot start with the settings of the target.
    """
    for stream in streams:
        try:
            yield _code_change(stream, target, engine, on_build)
        except (ConfigurationError, CanceledError):
            raise
        except Exception as raised:  # noqa: BLE001 - whatever it is, the next run would raise it
            error = translated(raised, stream.name)
            kind: Kind = "unknown" if error.transient else "refused"
            yield CodeChange(stream=stream, kind=kind, what=error.what, error=error, fix=error.fix)


def build_now(stream: "Stream", target: "Target", engine: "Engine", snapshot: Snapshot) -> query.Query:
    """Build the query of a stream as its next run would, and change nothing; its session is closed afterwards.

    Raises:
        TidemillError: The next run would refuse the definition.
        Exception: Spark's error about the function.
    """
    lake, tail = target.lake, snapshot.tail
    bound = source_records.bindings(stream, target)
    sources = new_readers.with_starts(
        stream, lake, tail, source_records.updated_sources(stream, target, snapshot, bound)
    )
    starts = new_readers.starting_points(stream, lake, tail, sources)
    with session_of(engine, stream.query.confs(engine.default_partitions())) as spark:
        schemas = schemas_of(with_schemas(stream, spark, sources))
        context = SourceContext(spark, target, current_versions(stream, lake), starts, schemas)
        built = query.build(stream, context, snapshot.generation)
        classic.check_supported(built.rows, stream.query.output_mode)
        for sink in stream.sinks:
            sink.check(snapshot.records.sink_context(sink.name, sink.connection(target)), built.output)
    return built


def _code_change(
    stream: "Stream",
    target: "Target",
    engine: "Engine",
    on_build: "Callable[[Stream], None] | None",
) -> CodeChange:
    snapshot = StreamRecords(target.lake, stream.name).snapshot()
    check(stream, snapshot)
    source_records.check_names(stream, snapshot)
    source_records.check_bindings(stream, target, snapshot, source_records.bindings(stream, target))
    is_new = snapshot.manifest is None or (snapshot.tail.latest_commit is None and not snapshot.tail.stateful)
    reads_nothing_yet = is_new and not have_versions(stream, target.lake)
    if on_build is not None and not reads_nothing_yet:
        on_build(stream)
    built = None if reads_nothing_yet else build_now(stream, target, engine, snapshot)
    if built is None or snapshot.manifest is None or is_new:
        what = "It has no state and has never committed a batch, so any code can start."
        return CodeChange(stream=stream, kind="safe", what=what)
    active = snapshot.manifest.active
    verdict = code_change.verdict(active, snapshot.tail, built.operators, built.fingerprint)
    pinned = dict(active.confs)
    if snapshot.tail.latest_offset is not None:
        pinned |= snapshot.tail.latest_offset.conf
    return CodeChange(
        stream=stream,
        kind=verdict.kind,
        what=_SENTENCES[verdict.kind],
        differences=verdict.differences,
        fix=code_change.fix(stream.name, verdict.kind),
        warnings=tuple(pinned_differences(pinned, stream.query.declared_confs)),
        schemas=schemas_of(snapshot.sources),
    )


_SENTENCES: dict[code_change.Kind, str] = {
    "nothing": "The code is the same as in the last run.",
    "safe": "New rows are computed by the new code. Those in the table stay, unless tidemill backfill recomputes them.",
    "unknown": "The operators of its state are not recorded, or its plan cannot be read, so they are not compared.",
    "mixes_state": "Spark would continue with state that mixes the old and the new meaning.",
    "refused_by_spark": "Spark would refuse to continue the state with this code.",
}

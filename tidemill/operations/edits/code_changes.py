"""What the current code would do to streams, before they run."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tidemill.catalog.sources import resolved_tables
from tidemill.connectors.connector import SourceContext
from tidemill.definitions.options import pinned_differences
from tidemill.definitions.stream import Stream
from tidemill.errors import CanceledError, ConfigurationError, TerminalError, TidemillError, TransientError
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
from tidemill.run.tables.versions import current_versions, sources_without_table

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from tidemill.run.spark.engine import Engine
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName

Kind = Literal["nothing", "safe", "unknown", "mixes_state", "refused_by_spark", "refused"]
_NOT_RUN = "upstream-not-run"


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
        warnings: What the query does that its author may not expect, and what is declared and has no effect, a sentence
            each.
        schemas: The columns of the sources that infer them, as DDL, by source: those that the first run inferred, or
            before it those of the data that are there now.
    """

    stream: Stream
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
    planner = _Planner(target, engine, on_build)
    for stream in streams:
        yield planner.change(stream)


def build_now(
    stream: Stream,
    target: "Target",
    engine: "Engine",
    snapshot: Snapshot,
    stand_ins: "Mapping[StreamName, StructType] | None" = None,
) -> query.Query:
    """Build the query of a stream as its next run would, and change nothing; its session is closed afterwards.

    Args:
        stand_ins: The columns of each table that it reads and that does not exist yet, by the stream that writes it.

    Raises:
        TidemillError: The next run would refuse the definition.
        Exception: Spark's error about the function.
    """
    lake, tail = target.lake, snapshot.tail
    bound = source_records.bindings(stream, target)
    sources = source_records.updated_sources(stream, target, snapshot, bound)
    with session_of(engine, stream.query.confs(engine.default_partitions())) as spark:
        stream, sources = resolved_tables(stream, spark, lake, tail, sources)
        sources = new_readers.with_starts(stream, lake, tail, sources)
        starts = new_readers.starting_points(stream, lake, tail, sources)
        schemas = schemas_of(with_schemas(stream, spark, sources))
        pins = current_versions(stream, lake, stand_ins or {})
        context = SourceContext(spark, target, pins, starts, schemas, stand_ins=stand_ins or {})
        built = query.build(stream, context, snapshot.generation)
        classic.check_supported(built.rows, stream.query.output_mode)
        for sink in stream.sinks:
            sink.check(snapshot.records.sink_context(sink.name, sink.connection(target)), built.output)
    return built


@dataclass(frozen=True, slots=True)
class _Planner:
    """Plans streams, each after those that it reads and that have no table yet.

    Attributes:
        changes: What the code would do to each stream that is planned.
        columns: The columns of the table of each one whose query could be built.
    """

    target: "Target"
    engine: "Engine"
    on_build: "Callable[[Stream], None] | None"
    changes: "dict[StreamName, CodeChange]" = field(default_factory=dict)
    columns: "dict[StreamName, StructType]" = field(default_factory=dict)

    def change(self, stream: Stream) -> CodeChange:
        """Return what the code would do to a stream, which is planned once."""
        if stream.name not in self.changes:
            try:
                self.changes[stream.name] = self._planned(stream)
            except (ConfigurationError, CanceledError):
                raise
            except Exception as raised:  # noqa: BLE001 - whatever it is, the next run would raise it
                error = translated(raised, stream.name)
                kind: Kind = "unknown" if error.transient or error.code == _NOT_RUN else "refused"
                change = CodeChange(stream=stream, kind=kind, what=error.what, error=error, fix=error.fix)
                self.changes[stream.name] = change
        return self.changes[stream.name]

    def _planned(self, stream: Stream) -> CodeChange:
        snapshot = StreamRecords(self.target.lake, stream.name).snapshot()
        check(stream, snapshot)
        source_records.check_names(stream, snapshot)
        bound = source_records.bindings(stream, self.target)
        source_records.check_bindings(stream, self.target, snapshot, bound)
        is_new = snapshot.manifest is None or (
            snapshot.tail.latest_commit is None and not snapshot.tail.stateful
        )
        stand_ins = self._stand_ins(stream) if is_new else {}
        if self.on_build is not None:
            self.on_build(stream)
        built = build_now(stream, self.target, self.engine, snapshot, stand_ins)
        self.columns[stream.name] = stream.main.table_schema(built.output)
        if snapshot.manifest is None or is_new:
            what = "It has no state and has never committed a batch, so any code can start."
            return CodeChange(
                stream=stream, kind="safe", what=what, warnings=built.warnings, schemas=built.schemas
            )
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
            warnings=(*built.warnings, *pinned_differences(pinned, stream.query.declared_confs)),
            schemas=schemas_of(snapshot.sources),
        )

    def _stand_ins(self, stream: Stream) -> "dict[StreamName, StructType]":
        """Return the columns of each table that a stream reads and that does not exist yet.

        Raises:
            TidemillError: The query of a stream that will write one cannot be built.
        """
        missing = sources_without_table(stream, self.target.lake)
        for name, source in missing.items():
            upstream = getattr(source, "definition", None)
            change = self.change(upstream) if isinstance(upstream, Stream) else None
            if name not in self.columns:
                error = None if change is None else change.error
                kind = TransientError if error is not None and error.transient else TerminalError
                raise kind(
                    f"it cannot be checked before {name} has run: it reads that table, which does not exist yet, and "
                    f"the query of {name} cannot be built.",
                    fix=f"correct {name}, which tidemill plan {name} explains; or run it.",
                    code=_NOT_RUN,
                )
        return {name: self.columns[name] for name in missing}


_SENTENCES: dict[code_change.Kind, str] = {
    "nothing": "The code is the same as in the last run.",
    "safe": "New rows are computed by the new code. Those in the table stay, unless tidemill backfill recomputes them.",
    "unknown": "The operators of its state are not recorded, or its plan cannot be read, so they are not compared.",
    "mixes_state": "Spark would continue with state that mixes the old and the new meaning.",
    "refused_by_spark": "Spark would refuse to continue the state with this code.",
}

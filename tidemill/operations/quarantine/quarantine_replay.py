"""Replay: what was refused meets today's schema and rules, and what passes moves to the stream's tables.

What each record becomes is decided once, and written to the staging folder. The steps after that only copy, in one
transaction per table that a repeat skips, so a kill between them leaves no record in both tables or in none:
- `table-<sink>` for each further sink, and `table`: the rows of the records that passed are written.
- `quarantine`: those that did not pass, and rows of the others that an expectation refuses, replace all of them.
- `staging`: the staging folder is removed.

Only records of committed batches are validated: a batch that must be repeated refuses its records again.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from tidemill.catalog.sources import located
from tidemill.connectors.connector import SourceContext
from tidemill.definitions.sink import BatchIdentity, CommitMetadata, SinkBatch
from tidemill.errors import TerminalError, TidemillError
from tidemill.operations.core.spec import OperationSpec
from tidemill.operations.core.staging import operation_metadata
from tidemill.operations.core.steps import (
    Step,
    execute_steps,
    existing_manifest,
    leased,
    staging_missing,
    unfinished,
)
from tidemill.operations.generations.table_versions import continued
from tidemill.operations.quarantine.quarantine_view import with_quarantine
from tidemill.operations.quarantine.replay_plan import Replay, Verdict, effects_of
from tidemill.operations.quarantine.replayed_rows import held, validated, verdict_of, write_output
from tidemill.records.operation import Operation, unfinished_error
from tidemill.records.stream_records import Snapshot, StreamRecords
from tidemill.run.batch.quarantine import has_quarantine, with_kind
from tidemill.run.decide.preconditions import check_records
from tidemill.run.execute import query
from tidemill.run.pause_points import pause_point
from tidemill.run.spark.engine import record_jvm, session_of
from tidemill.run.spark.error_translation import translated
from tidemill.run.tables.new_readers import starting_points
from tidemill.run.tables.schemas import schemas_of
from tidemill.run.tables.versions import current_versions
from tidemill.storage.table_ref import TableRef
from tidemill.text.names import MAIN_SINK, QUARANTINE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidemill.definitions.stream import Stream
    from tidemill.records.lease import Lease
    from tidemill.run.spark.engine import Engine
    from tidemill.target.target import Target

KIND = "replay"
_VALIDATED, _OUTPUT, _REFUSED = "validated", "output", "refused"


def replay_quarantine(
    stream: "Stream",
    target: "Target",
    engine: "Engine",
    *,
    known: "Sequence[Stream]" = (),
    dry_run: bool = False,
) -> Replay:
    """Move what passes today's schema and rules from a stream's quarantine into its tables, each record once.

    The others stay, with the rules that they violate today. A replay that was killed is finished as it was decided.

    Args:
        stream: A stream with a quarantine.
        engine: Where Spark sessions come from; not asked where the quarantine is empty.
        dry_run: Whether the replay is planned only. The plan validates all records, so it needs Spark, too.

    Raises:
        TerminalError: The stream has no quarantine, or another operation of it is unfinished.
        LeaseHeldError: A run holds the stream's lease.
        TidemillError: The function or a table does not fit, as in a run.
    """
    records = StreamRecords(target.lake, stream.name)
    if not has_quarantine(stream) and records.table(QUARANTINE).open() is None:
        raise TerminalError(
            "it has no quarantine: it does not read a feed, and no expectation has on_violation='quarantine'.",
            stream=stream.name,
            fix="name another stream; tidemill list shows what each stream reads.",
            code="quarantine-missing",
        )
    with leased(records, KIND, dry_run=dry_run) as lease:
        operation = unfinished(records, KIND, {})
        if operation is None and (other := records.operation()) is not None:
            raise unfinished_error(other, stream.name)
        snapshot = records.snapshot()
        if operation is None and (snapshot.manifest is None or records.table(QUARANTINE).open() is None):
            return Replay.of(stream.name, Verdict(by_rule={}))
        with _translated(stream), ExitStack() as sessions:
            stream = located(stream, snapshot.sources)
            replaying = _Replaying(stream, target, engine, snapshot, sessions)
            if operation is None:
                check_records(stream, snapshot)
                return replaying.begin(lease, known)
            return replaying.finish(operation, lease)


@contextmanager
def _translated(stream: "Stream") -> Iterator[None]:
    """Raise Spark's errors as Tidemill's, as a run does."""
    try:
        yield
    except TidemillError:
        raise
    except Exception as error:
        raise translated(error, stream.name) from error


@dataclass(frozen=True)
class _Replaying:
    """A replay of one stream whose lease is held, unless it is planned only."""

    stream: "Stream"
    target: "Target"
    engine: "Engine"
    snapshot: Snapshot
    sessions: ExitStack

    @cached_property
    def _spark(self) -> "SparkSession":
        confs = self.stream.query.confs(self.engine.default_partitions())
        return self.sessions.enter_context(session_of(self.engine, confs))

    @property
    def _records(self) -> StreamRecords:
        return self.snapshot.records

    def begin(self, lease: "Lease | None", readers: "Sequence[Stream]") -> Replay:
        """Judge the records, and move those that pass unless there is no lease."""
        manifest = existing_manifest(self._records)
        numbers = continued(manifest)
        decided: dict[str, Any] = {
            "condition": _condition(numbers, self.snapshot.last_commit),
            "quarantine_version": self._records.table(QUARANTINE).log.latest_version(),
        }
        refused = self._records.table(QUARANTINE).read(self._spark).where(decided["condition"])
        built = self._query(manifest.active.number)
        rows = validated(self.stream, built.output, with_kind(refused))
        for sink in self.stream.sinks:
            sink.check(self._records.sink_context(sink.name, sink.connection(self.target)), built.output)
        if lease is None:
            verdict = verdict_of(self.stream, rows)
            return Replay.of(self.stream.name, verdict, effects=self._effects(verdict, readers))
        record_jvm(lease, self.engine, self._spark)
        operation = REPLAY.begin(self.stream.name, {}, decided)
        self._clean()
        written = self._staged_table(operation, _VALIDATED)
        written.write(rows).save()
        staged = written.read(self._spark)
        verdict = verdict_of(self.stream, staged)
        effects = self._effects(verdict, readers)
        unchanged = Replay.of(self.stream.name, verdict, effects=effects)
        if not unchanged.changes:
            self._clean()
            return unchanged
        metadata = (
            write_output(
                self.stream,
                built.output,
                staged,
                verdict,
                table=self._staged_table(operation, _OUTPUT),
                refused=self._staged_table(operation, _REFUSED),
            )
            if verdict.passed
            else {}
        )
        again = metadata.get("rows_quarantined", 0)
        decided["verdict"] = asdict(verdict)
        decided["metadata"] = {"fingerprint": built.fingerprint, "rows_read": verdict.passed, **metadata}
        sinks = self.stream.sinks if verdict.passed else ()
        decided["sinks"] = [sink.name for sink in sinks]
        for sink in sinks:
            lease.check()
            sink.prepare(
                self._spark, self._records.sink_context(sink.name, sink.connection(self.target)), built.output
            )
        pause_point("replay-staged", self.stream.name)
        execute_steps(self._records, operation, self._steps(operation), lease)
        return Replay.of(self.stream.name, verdict, effects=effects, operation=operation.id, again=again)

    def _query(self, generation: int) -> query.Query:
        """Return the query of the stream as a run would start it."""
        lake, sources = self.target.lake, self.snapshot.sources
        context = SourceContext(
            self._spark,
            self.target,
            current_versions(self.stream, lake),
            starting_points(self.stream, lake, self.snapshot.tail, sources),
            schemas_of(sources),
        )
        return query.build(self.stream, context, generation)

    def _effects(self, verdict: Verdict, readers: "Sequence[Stream]") -> tuple[str, ...]:
        return effects_of(self.stream, verdict, readers, held(self.stream))

    def finish(self, operation: Operation, lease: "Lease | None") -> Replay:
        """Finish a replay that was killed."""
        verdict = Verdict(**operation.decided["verdict"])
        done = ", ".join(operation.done) or "none"
        effects = (
            (
                f"The replay began at {operation.began_at} and was interrupted; it is finished as it was decided then "
                f"(steps that are done: {done})."
            ),
        )
        if lease is not None:
            record_jvm(lease, self.engine, self._spark)
            execute_steps(self._records, operation, self._steps(operation), lease)
        return Replay.of(self.stream.name, verdict, effects=effects, operation=operation.id)

    def _staging(self, operation: Operation) -> str:
        return f"{self.target.lake.staging(self.stream.name)}/{operation.id}"

    def _clean(self) -> None:
        """Remove what replays that were killed before they changed a table have left behind."""
        lake = self.target.lake
        for entry in lake.store.list(lake.staging(self.stream.name)):
            if entry.name.startswith(f"{KIND}-"):
                lake.store.delete_folder(entry.key)

    def _steps(self, operation: Operation) -> tuple[Step, ...]:
        steps = []
        for sink in operation.decided["sinks"]:
            name = "table" if sink == MAIN_SINK else f"table-{sink}"
            steps.append(Step(name, partial(self._write, operation, sink)))
        steps.append(Step(QUARANTINE, partial(self._keep_refused, operation)))
        steps.append(Step("staging", partial(self.target.lake.store.delete_folder, self._staging(operation))))
        return tuple(steps)

    def _staged(self, operation: Operation, table: str) -> "DataFrame":
        staged = self._staged_table(operation, table)
        if staged.open() is None:
            raise staging_missing(self._records, operation, staged)
        return staged.read(self._spark)

    def _staged_table(self, operation: Operation, name: str) -> TableRef:
        return TableRef(self.target.lake.store, f"{self._staging(operation)}/{name}")

    def _write(self, operation: Operation, name: str) -> None:
        """Write the rows of the records that passed into one sink; Delta skips it where a table has them."""
        sink = next((sink for sink in self.stream.sinks if sink.name == name), None)
        if sink is None:
            raise TerminalError(
                f"its definition no longer has the sink {name!r}, which its replay {operation.id} writes.",
                stream=self.stream.name,
                fix="declare the sink as it was, and run the command again.",
                code="sink-removed",
            )
        metadata = CommitMetadata(batch_id=None, operation=operation.id, **operation.decided["metadata"])
        identity = BatchIdentity(str(self.stream.name), operation.id, 0)
        context = self._records.sink_context(name, sink.connection(self.target))
        batch = SinkBatch(identity, context, metadata)
        sink.write(self._staged(operation, _OUTPUT), batch)

    def _keep_refused(self, operation: Operation) -> None:
        """Replace the validated records by those that did not pass; Delta skips it where the table has been changed."""
        from pyspark.sql import functions as F

        rows = self._staged(operation, _VALIDATED).where(F.size("violated") > 0).drop("before")
        if operation.decided["metadata"].get("rows_quarantined"):
            rows = rows.unionByName(self._staged(operation, _REFUSED))
        (
            rows.write.format("delta")
            .mode("overwrite")
            .option("mergeSchema", "true")
            .option("replaceWhere", operation.decided["condition"])
            .option("userMetadata", operation_metadata(operation))
            .option("txnAppId", operation.id)
            .option("txnVersion", "0")
            .save(self._records.table(QUARANTINE).uri)
        )


def _condition(generations: "Sequence[int]", last_batch: int) -> str:
    """Return the SQL condition for the records of the committed batches of a stream.

    A generation that the active one does not continue has read other records: the active one has read them again.

    Args:
        generations: The active generation, and those that it continues.
        last_batch: The last committed batch of the active generation.
    """
    active, *earlier = map(int, generations)
    condition = f"(generation = {active} AND batch_id <= {int(last_batch)})"
    return condition if not earlier else f"{condition} OR generation IN ({', '.join(map(str, earlier))})"


REPLAY = OperationSpec(
    kind=KIND,
    words="quarantine replay",
    job="replay_quarantine",
    summary="Move the records in quarantine that pass today's schema and rules into the tables of their streams.",
    description="Each is moved exactly once. The others stay, with the rules that they violate today. If a replay was "
    "killed, the same command finishes it.",
    apply=replay_quarantine,
    eligible=with_quarantine,
)

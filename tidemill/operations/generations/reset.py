"""Reset: a stream continues in a new generation from other offsets, without what it had in its state.

The steps, each of which can be repeated:
- `checkpoint`: the new checkpoint is written; from the earliest data on it is an empty folder.
- `old`: with `--table new`, the old rows are copied to a table of their own.
- `tables`: with `--table replace` or `new`, each table is emptied in one commit.
- `manifest`: the new generation becomes the active one.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args
from uuid import uuid4

from tidemill.catalog.sources import located
from tidemill.checkpoint import SourceFile
from tidemill.checkpoint.format.source_log import LogEntry
from tidemill.checkpoint.write import CheckpointWriter
from tidemill.connectors.answers import Start
from tidemill.connectors.source_record import SourceRecord
from tidemill.definitions.sink import transaction_app_id
from tidemill.operations.core.change import Change, never_run, refusal
from tidemill.operations.core.spec import Argument, OperationSpec, flag
from tidemill.operations.core.staging import check_not_shared, copy_tables, operation_metadata
from tidemill.operations.core.steps import Step, execute_steps, leased, session, unfinished
from tidemill.operations.generations.starting_positions import ends_now, named
from tidemill.records.manifest import Generation, Manifest
from tidemill.records.operation import Operation
from tidemill.records.stream_records import Snapshot, StreamRecords
from tidemill.text.names import QUARANTINE

if TYPE_CHECKING:
    from tidemill.checkpoint import OffsetEntry
    from tidemill.definitions.stream import Stream
    from tidemill.records.lease import Lease
    from tidemill.run.spark.engine import Engine
    from tidemill.target.target import Target

TableChoice = Literal["keep", "replace", "new"]
KIND = "reset"
STEPS = ("checkpoint", "old", "tables", "manifest")


def reset(
    stream: "Stream",
    target: "Target",
    engine: "Engine",
    *,
    start: str,
    table: TableChoice,
    allow_doubled: bool = False,
    allow_skipped: bool = False,
    dry_run: bool = False,
) -> Change:
    """Let a stream continue from other offsets, in a new generation with empty state.

    Args:
        engine: Where Spark sessions come from; not asked for a plan.
        start: `earliest`, `now`, or offsets by source as JSON.
        table: `keep` the rows of its tables, `replace` them by what is read from now on, or `new`: the same, with a
            copy of the old rows.
        allow_doubled: Whether rows may be added a second time.
        allow_skipped: Whether data may be left unread.

    Raises:
        TerminalError: Rows would be doubled or skipped and that is not allowed; or a stream with state would start
            elsewhere than at the earliest data.
        ConfigurationError: The offsets are no JSON.
        LeaseHeldError: A run holds the stream's lease.
    """
    records = StreamRecords(target.lake, stream.name)
    with leased(records, KIND, dry_run=dry_run) as lease:
        snapshot = records.snapshot()
        stream = located(stream, snapshot.sources)
        arguments = RESET.recorded(
            start=start, table=table, allow_doubled=allow_doubled, allow_skipped=allow_skipped
        )
        operation = unfinished(records, KIND, arguments)
        if operation is None or not operation.publishing:
            planned = snapshot.tail.latest_offset
            if snapshot.manifest is None or planned is None:
                raise never_run(stream, "it has read nothing, so there is nothing to reset.")
            if table != "keep":
                check_not_shared(records)
            starts = {} if start == "earliest" else _starts(stream, target, snapshot, planned, arguments)
            effects = _effects(stream, starts, start, table)
            operation = _new(stream, snapshot, arguments, starts, effects)
            if not dry_run:
                _check_allowed(stream, operation, allow_doubled=allow_doubled, allow_skipped=allow_skipped)
        if lease is not None:
            execute_steps(
                records, operation, _Resetting(stream, records, engine, lease, operation).steps(), lease
            )
    decided = operation.decided
    return Change(
        stream=stream.name,
        what=f"Generation {decided['generation']} starts from {start}, with empty state.",
        effects=tuple(decided["effects"]),
    )


def _starts(
    stream: "Stream",
    target: "Target",
    snapshot: Snapshot,
    planned: "OffsetEntry",
    arguments: dict[str, Any],
) -> dict[str, Start]:
    """Return where each source starts."""
    if snapshot.tail.stateful:
        raise refusal(
            stream,
            "it has state, which does not exist for a start in the middle: what is open there would be missing.",
            f"start from the earliest data; or compute it again: tidemill rebuild {stream.name}",
            code="reset-not-possible",
        )
    entry = planned
    if snapshot.tail.next_start.kind == "repeat_batch":
        entry = _read_before(stream, snapshot, planned, stays=arguments["table"] == "keep")
    start = arguments["start"]
    return ends_now(stream, target, entry) if start == "now" else named(stream, target, entry, start)


def _read_before(
    stream: "Stream", snapshot: Snapshot, planned: "OffsetEntry", *, stays: bool
) -> "OffsetEntry":
    """Return the offsets up to which a stream has read before a batch that is planned and not committed."""
    tail = snapshot.tail
    if stays:
        for sink in stream.tables:
            there = snapshot.records.sink_table(tail.query_id, sink.name)
            if there is not None and there.has(planned.batch_id):
                raise refusal(
                    stream,
                    f"batch {planned.batch_id} is in table {there.table.name} and is not finished.",
                    f"finish it first: tidemill run {stream.name}; or, if the rows may be removed: --table replace",
                    code="batch-not-finished",
                )
    return replace(planned, sources=()) if tail.committed_offsets is None else tail.committed_offsets


def _effects(
    stream: "Stream", starts: dict[str, Start], start: str, table: TableChoice
) -> dict[str, list[str]]:
    """Return what follows, in sentences: what is doubled, what is skipped, and the rest."""
    doubled = [f"Read a second time: {one.doubled}." for one in starts.values() if one.doubled]
    skipped = [f"Never read: {one.skipped}." for one in starts.values() if one.skipped]
    if start == "earliest":
        doubled = ["Everything that the sources have is read a second time."]
    merges = not stream.external_sinks and all(sink.orders_changes for sink in stream.tables)
    rest = []
    if table != "keep":
        rest.append("Its tables are emptied, each in one commit; readers of the table refuse that commit.")
        doubled = []
    elif merges and doubled:
        rest, doubled = [*doubled, "A merge by sequence takes each change once, so no row is doubled."], []
    if table == "new":
        rest.append("The old rows are copied to a table of their own first.")
    return {"doubled": doubled, "skipped": skipped, "rest": rest}


def _new(
    stream: "Stream",
    snapshot: Snapshot,
    arguments: dict[str, Any],
    starts: dict[str, Start],
    effects: dict[str, list[str]],
) -> Operation:
    entry = snapshot.tail.latest_offset
    batch = -1 if entry is None else entry.batch_id
    return RESET.begin(
        stream.name,
        arguments,
        decided={
            "generation": snapshot.generation + 1,
            "query_id": str(uuid4()),
            "like_batch": batch,
            "offsets": {name: one.offset for name, one in starts.items()},
            "files": {
                name: [[file.path, file.timestamp_ms] for file in one.files]
                for name, one in starts.items()
                if one.files
            },
            "doubled": effects["doubled"],
            "skipped": effects["skipped"],
            "effects": [sentence for sentences in effects.values() for sentence in sentences],
        },
    )


def _check_allowed(
    stream: "Stream", operation: Operation, *, allow_doubled: bool, allow_skipped: bool
) -> None:
    """Refuse what would double or skip rows, unless it is allowed."""
    decided = operation.decided
    for sentences, allowed, option in (
        (decided["doubled"], allow_doubled, "--allow-doubled"),
        (decided["skipped"], allow_skipped, "--allow-skipped"),
    ):
        if sentences and not allowed:
            raise refusal(
                stream,
                " ".join(sentences),
                f"if that is intended: {operation.command} {option}",
                code="rows-doubled-or-skipped",
            )


@dataclass(frozen=True, slots=True)
class _Resetting:
    """The steps of a reset."""

    stream: "Stream"
    records: StreamRecords
    engine: "Engine"
    lease: "Lease"
    operation: Operation

    def steps(self) -> tuple[Step, ...]:
        """Return the steps, in the order of `STEPS`."""
        runs = (self._write_checkpoint, self._copy_old, self._empty_tables, self._switch)
        return tuple(map(Step, STEPS, runs))

    @property
    def _number(self) -> int:
        return int(self.operation.decided["generation"])

    def _write_checkpoint(self) -> None:
        decided = self.operation.decided
        to, like = self.records.checkpoint(self._number), self.records.checkpoint(self._number - 1)
        writer = CheckpointWriter(to)
        writer.clear()
        if not decided["offsets"]:
            return
        for name, files in decided["files"].items():
            entries = [SourceFile(path, timestamp, 0) for path, timestamp in files]
            writer.write_source_log(name, LogEntry(0, compact=False), entries)
        writer.begin(decided["query_id"])
        writer.write_first_batch(like, decided["like_batch"], decided["offsets"], is_committed=True)

    def _copy_old(self) -> None:
        if self.operation.arguments["table"] == "new":
            with session(self.engine, self.lease) as spark:
                copy_tables(spark, self.stream, self.records, self._number - 1)

    def _empty_tables(self) -> None:
        decided = self.operation.decided
        replaces = self.operation.arguments["table"] != "keep"
        if not replaces and not decided["offsets"]:
            return
        with session(self.engine, self.lease) as spark:
            names = [sink.name for sink in self.stream.tables]
            for name in (*names, QUARANTINE):
                path = self.records.table(name)
                if path.open() is None:
                    continue
                empty = path.read(spark).limit(0)
                writer = empty.write.format("delta").option(
                    "userMetadata", operation_metadata(self.operation)
                )
                # The checkpoint has batch 0, and a table must have what its checkpoint has.
                if decided["offsets"]:
                    app_id = transaction_app_id(decided["query_id"], name)
                    writer = writer.option("txnAppId", app_id).option("txnVersion", "0")
                if replaces:
                    writer.mode("overwrite").option("replaceWhere", "true").save(path.uri)
                else:
                    writer.mode("append").save(path.uri)

    def _switch(self) -> None:
        manifest = self.records.manifest()
        if manifest is not None and manifest.active.number != self._number:
            self.records.write_manifest(_reset(manifest, self.operation))


def _reset(manifest: Manifest, operation: Operation) -> Manifest:
    active, decided = manifest.active, operation.decided
    seeded = bool(decided["offsets"])
    sources = {
        name: SourceRecord(binding=record.binding, accepted_versions=record.accepted_versions)
        for name, record in active.sources.items()
        if record.stopped_at is None
    }
    generation = Generation(
        number=decided["generation"],
        why=f"reset to {operation.arguments['start']}",
        sources=sources,
        query_id=decided["query_id"] if seeded else None,
        confs=active.confs if seeded else {},
        sinks=active.sinks,
        external_sinks=active.external_sinks,
        table_id=active.table_id,
        ledger_batch=0 if seeded else -1,
        first_batch=1 if seeded else 0,
    )
    return replace(manifest.with_generation(generation), last_run=None)


RESET = OperationSpec(
    kind=KIND,
    summary="Let a stream continue from other offsets, in a new generation with empty state.",
    description="The plan states which rows would be read twice or never. Each needs a flag that allows it.",
    apply=reset,
    arguments=(
        Argument(
            name="start",
            help="earliest, now, or offsets by source as JSON: "
            '\'{"events": {"orders": {"0": 120}}}\' for a topic, \'{"rows": 17}\' for a version of a table.',
            flag="--from",
            metavar="WHERE",
            required=True,
        ),
        Argument(
            name="table",
            help="keep the rows, remove them (replace), or remove them and keep a copy (new).",
            choices=get_args(TableChoice),
            required=True,
        ),
        flag("allow_doubled", "Rows may be added a second time."),
        flag("allow_skipped", "Data may be left unread."),
    ),
    one_stream=True,
    steps=STEPS,
)

"""Backfill: a range of a stream's table is computed again beside the live stream, and replaced in one commit.

A stream whose ranges cannot be computed alone is rebuilt. What would be done is planned without a JVM: the range, what
the sources still have of it, and what is read. How it is done is in `backfill_steps.py`.
"""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tidemill.catalog.sources import located
from tidemill.connectors.feed import feed_of
from tidemill.definitions.code_version import code_version
from tidemill.errors import TerminalError
from tidemill.operations.core.change import Change, began, never_run, refusing_readers
from tidemill.operations.core.spec import ALLOW_MISSING, Argument, OperationSpec, flag
from tidemill.operations.core.staging import check_has_rows, check_not_shared, unstaged
from tidemill.operations.core.steps import unfinished
from tidemill.operations.replay.backfill_range import BackfillRange, backfill_range, whole_because
from tidemill.operations.replay.backfill_steps import KIND, STEPS, Backfilling, read_up_to
from tidemill.operations.replay.follow import follow_backfills
from tidemill.operations.replay.lookback import TIMES, Lookback, lookback_of, parts_of
from tidemill.operations.replay.range_origins import missing_in_sources, removed_versions
from tidemill.operations.replay.rebuild import rebuild
from tidemill.records.operation import Operation
from tidemill.records.stream_records import Snapshot, StreamRecords
from tidemill.run.execute.progress import Live
from tidemill.text.durations import flag_duration
from tidemill.text.plurals import pluralize

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tidemill.connectors.answers import SourceSpan
    from tidemill.definitions.stream import Stream
    from tidemill.run.spark.engine import Engine
    from tidemill.target.target import Target
    from tidemill.text.names import StreamName


def backfill(
    stream: "Stream",
    target: "Target",
    engine: "Engine",
    *,
    begin: str,
    end: str,
    lookback: str | timedelta | None = None,
    allow_missing: bool = False,
    keep_staging: bool = False,
    readers: "Sequence[Stream]" = (),
    live: Live | None = None,
    dry_run: bool = False,
    publish: bool = True,
) -> Change:
    """Compute a range of a stream's table again, with the code as it is now, and replace it in one commit.

    Everything that the live stream has read is read again, so the range is computed from all rows that belong to
    it; with a lookback, only what is that close to the range by the times of the sources. The live stream may run
    meanwhile; for the publication its lease is held. In a merge table the keys that have a row in the range are
    computed again.

    Args:
        stream: The stream, which declares `backfill_by`.
        engine: Where Spark sessions come from; not asked for a plan.
        begin: The first value of the column that is replaced.
        end: The first value that is not.
        lookback: How much of the sources is read before and after the range: `"2 days"`. The default is what the
            stream declares, or everything.
        allow_missing: Whether to continue where the sources no longer have everything that the stream has read.
        keep_staging: Whether the computed tables are kept, in the staging folder.
        publish: Whether the table changes; otherwise the range is computed and compared, and the same call with
            `publish` continues.

    Raises:
        SchemaChangeError: A column of the table is missing in the new rows, or has another type.
        TerminalError: The range does not fit the table, the stream cannot be computed for a range, or its sources no
            longer have everything.
        LeaseHeldError: A run, or another process with the same operation, holds the stream.
    """
    records = StreamRecords(target.lake, stream.name)
    snapshot = records.snapshot()
    stream = located(stream, snapshot.sources)
    length = lookback_of(stream, lookback)
    arguments = BACKFILL.recorded(
        begin=begin, end=end, lookback=length, allow_missing=allow_missing, keep_staging=keep_staging
    )
    operation = unfinished(records, KIND, arguments)
    current: dict[str, Any] = {"generation": snapshot.generation, "code_version": code_version(stream)}
    if operation is not None and not operation.publishing and length is not None:
        reading = Lookback(stream, target, records, BackfillRange.decided(operation.decided), length)
        current["parts"] = parts_of(reading.spans(read_up_to(stream, target, snapshot)))
    if operation is None or not operation.continues(current):
        _check(stream, snapshot)
        span = backfill_range(stream, records.table(), begin, end)
        spans = Lookback(stream, target, records, span, length).checked(read_up_to(stream, target, snapshot))
        missing = _missing(stream, target, snapshot, span, spans)
        if missing and not (allow_missing or dry_run):
            raise TerminalError(
                f"its sources no longer have everything that the range needs: {' '.join(missing)}",
                stream=stream.name,
                fix="choose a range that does not need it; or give --allow-missing, and the rows that came from it "
                "are missing.",
                code="sources-incomplete",
            )
        decided = current | {"query_id": str(uuid4()), "missing": list(missing)}
        decided |= {"column": span.column, "type": span.kind, "begin": span.begin, "end": span.end}
        decided |= {"reads": [one.reads for one in spans.values()], "parts": parts_of(spans)}
        operation = BACKFILL.begin(stream.name, arguments, decided)
    if not dry_run:
        staging = Backfilling(stream, target, engine, records, operation, live or Live())
        operation = staging.complete(publish=publish)
    return _change(stream, operation, readers)


def _check(stream: "Stream", snapshot: Snapshot) -> None:
    """Check that a range of the stream can be computed alone."""
    check_has_rows(stream)
    check_not_shared(snapshot.records)
    again = f"compute it as a whole: tidemill rebuild {stream.name}"
    if snapshot.manifest is None or snapshot.tail.latest_offset is None:
        raise never_run(stream, "it has read nothing so far, so there is nothing to compute again.")
    if (because := whole_because(stream)) is not None:
        raise TerminalError(f"{because}.", stream=stream.name, fix=again, code="backfill-not-possible")
    known = {source.key for source in snapshot.tail.latest_offset.sources}
    declared = {name for name, source in stream.sources.items() if source.streaming}
    if known != declared:
        raise TerminalError(
            f"its checkpoint has the sources {', '.join(sorted(known))}, and its definition "
            f"{', '.join(sorted(declared))}.",
            stream=stream.name,
            fix=f"run the stream first (tidemill run {stream.name}); or {again}",
            code="source-name-changed",
        )


def _missing(
    stream: "Stream",
    target: "Target",
    snapshot: Snapshot,
    span: BackfillRange,
    spans: "Mapping[str, SourceSpan]",
) -> tuple[str, ...]:
    """Return what the sources no longer have; of a feed only what rows of the range came from."""
    missing = (
        *missing_in_sources(stream, target, snapshot, spans),
        *removed_versions(stream, target, snapshot, spans),
    )
    if not missing or feed_of(stream) is None:
        return missing
    path = snapshot.records.table()
    table = path.open()
    if table is None:
        return missing
    from tidemill.operations.replay.range_origins import lost_origins

    return lost_origins(stream, target, path.dataset(table), span)


def _change(stream: "Stream", operation: Operation, readers: "Sequence[Stream]") -> Change:
    span = BackfillRange.decided(operation.decided)
    what = f"the keys that have a row with {span}" if _by_key(stream) else f"the rows with {span}"
    decided, lookback = operation.decided, operation.arguments.get("lookback")
    near = f" within {lookback} of the range" if lookback else ""
    effects = [
        f"What the stream has read{near} is read again, into a staging table; then {what} are replaced in one commit.",
        *([f"That is {'; '.join(decided['reads'])}."] if decided.get("reads") else ()),
        *unstaged(stream),
        *decided["missing"],
    ]
    if not (lookback or operation.done or _by_key(stream)) and span.kind in TIMES:
        effects.append("A lookback, such as --lookback 2d, reads only what is that close to the range.")
    if not _by_key(stream):
        effects += refusing_readers(stream, readers, again="Backfill or rebuild")
    effects += began(operation)
    return Change(
        stream=stream.name,
        what=f"{what[0].upper()}{what[1:]} are computed again.",
        effects=tuple(effects),
        outcome=_outcome(operation),
    )


def _outcome(operation: Operation) -> str:
    """Return how the range changes, or has changed; empty before it is computed."""
    result = operation.result
    if not result:
        return ""
    verb = "has" if operation.ended_at else "would have"
    changed = f", {result['rows_changed']:,} changed" if result["rows_changed"] else ""
    return (
        f"The range had {pluralize(result['rows_before'], 'row')} and {verb} {pluralize(result['rows_after'], 'row')}: "
        f"{result['rows_added']:,} added, {result['rows_removed']:,} removed{changed}."
    )


def _by_key(stream: "Stream") -> bool:
    return stream.main.rows_are_replaced


def replay_range(
    stream: "Stream",
    target: "Target",
    engine: "Engine",
    *,
    begin: str,
    end: str,
    run_id: str,
    selected: "Collection[StreamName]",
    lookback: str | timedelta | None = None,
    allow_missing: bool = False,
    keep_staging: bool = False,
    readers: "Sequence[Stream]" = (),
    live: Live | None = None,
    dry_run: bool = False,
    publish: bool = True,
) -> Change:
    """Replay a range of a stream; a stream whose ranges cannot be computed alone is rebuilt.

    All other arguments are those of `backfill`.

    Args:
        run_id: The id of the run in which a reader reads on.
        selected: The streams that were selected themselves. A reader of them without `backfill_by` is rebuilt.
        lookback: How much of the sources is read before and after the range, for the streams that were selected
            themselves; the others have their own.

    Raises:
        TidemillError: As `backfill` and `rebuild` do.
    """
    because = whole_because(stream)
    if because is None and stream.backfill_by is None and stream.name not in selected:
        because = "it declares no backfill_by"
    common = partial(
        rebuild if because else backfill,
        stream,
        target,
        engine,
        allow_missing=allow_missing,
        readers=readers,
        live=live,
        dry_run=dry_run,
        publish=publish,
    )
    given = lookback if stream.name in selected else None
    if because:
        lookback_of(stream, given)
        change = common()
        return replace(change, effects=(f"It is rebuilt as a whole: {because}.", *change.effects))
    if not dry_run:
        follow_backfills(stream, target, engine, run_id)
    return common(begin=begin, end=end, lookback=given, keep_staging=keep_staging)


BACKFILL = OperationSpec(
    kind=KIND,
    summary="Compute a range of tables again, with the current code, and replace it in one commit per table.",
    description="The input of the streams is read again, and the streams may run meanwhile. If a backfill was killed, "
    "the same command finishes it. tidemill operations lists the backfills.",
    apply=replay_range,
    arguments=(
        Argument(
            name="begin",
            help="The first value of the column that backfill_by names, such as 2026-01-31.",
            flag="--from",
            metavar="VALUE",
            required=True,
        ),
        Argument(
            name="end",
            help="The first value that is not in the range.",
            flag="--to",
            metavar="VALUE",
            required=True,
        ),
        Argument(
            name="lookback",
            help="Read only what is this close to the range, by the times of files, messages and commits: 12h, 2d, "
            "'1 day 12 hours'. The default is what the stream declares, or everything.",
            metavar="DURATION",
            read=flag_duration,
        ),
        ALLOW_MISSING,
        flag("keep_staging", "Keep the computed tables in the staging folder."),
    ),
    replays=True,
    question="Compute it?",
    steps=STEPS,
)
